package keys_test

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/app/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	oct32 = `{"kty":"oct","kid":"t1","alg":"HS256","k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}`
	// RFC 7517 appendix A.2 and RFC 8037 appendix A.1.
	rfcEC = `{"kty":"EC","kid":"e1","alg":"ES256","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",` +
		`"y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","d":"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"}`
	rfcEd25519 = `{"kty":"OKP","kid":"o1","alg":"EdDSA","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",` +
		`"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
)

func document(members ...string) []byte {
	return []byte(`{"keys":[` + strings.Join(members, ",") + `]}`)
}

func TestParseKeepsOrderNameAndAlgorithm(t *testing.T) {
	set, err := keys.Parse("keys.json", document(oct32, rfcEC, rfcEd25519))
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 3 || set.First().ID() != "t1" {
		t.Fatalf("%d keys, first %v", set.Len(), set.First())
	}
	for id, alg := range map[string]keys.Alg{"t1": keys.HS256, "e1": keys.ES256, "o1": keys.EdDSA} {
		if k, ok := set.Lookup(id); !ok || k.Alg() != alg {
			t.Errorf("%s: %v, %v", id, k, ok)
		}
	}
	if _, ok := set.Lookup("absent"); ok {
		t.Error("found a key that is not there")
	}
}

// Each broken key is refused with an error that names file, index and field, and quotes no material.
func TestParseNamesTheFault(t *testing.T) {
	rsaShort := `{"kty":"RSA","kid":"r1","alg":"RS256","e":"AQAB","n":"` + base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 128))) + `"}`
	replace := func(member, old, with string) string {
		if !strings.Contains(member, old) {
			t.Fatalf("%q is not in the sample", old)
		}
		return strings.Replace(member, old, with, 1)
	}
	for name, tc := range map[string]struct{ member, want string }{
		"no alg":            {replace(oct32, `"alg":"HS256",`, ``), "keys[1].alg: missing"},
		"alg none":          {replace(oct32, `HS256`, `none`), `keys[1].alg: "none" is not a supported`},
		"alg null":          {replace(oct32, `"HS256"`, `null`), "keys[1].alg: must be a string"},
		"Alg, case-folded":  {replace(oct32, `"alg"`, `"Alg"`), "keys[1].alg: missing"},
		"no kid":            {replace(oct32, `"kid":"t1",`, ``), "keys[1].kid: missing"},
		"kid is a path":     {replace(oct32, `"t1"`, `"../../dev/null"`), "keys[1].kid: 1..64 of"},
		"kid is too long":   {replace(oct32, `t1`, strings.Repeat("k", 65)), "keys[1].kid: 1..64 of"},
		"kid twice":         {oct32 + "," + oct32, `keys[2].kid: "t1" is already the name of keys[1]`},
		"no kty":            {replace(oct32, `"kty":"oct",`, ``), "keys[1].kty: missing"},
		"kty for other alg": {replace(oct32, `HS256`, `ES256`), `keys[1].kty: "oct" does not serve this alg, want "EC"`},
		"for encryption":    {replace(oct32, `{`, `{"use":"enc",`), "keys[1].use"},
		"31 bytes":          {replace(oct32, `Hh8"`, `Hg"`), "keys[1].k: 31 bytes, needs at least 32"},
		"32 bytes, HS512":   {replace(oct32, `HS256`, `HS512`), "keys[1].k: 32 bytes, needs at least 64"},
		"k padded":          {replace(oct32, `Hh8"`, `Hh8="`), "keys[1].k: must be base64url"},
		"k trailing bits":   {replace(oct32, `Hh8"`, `Hh9"`), "keys[1].k: must be base64url"},
		"k with line break": {replace(oct32, `Hh8"`, `\nHh8"`), "keys[1].k: must be base64url"},
		"k is a number":     {replace(oct32, `"k":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"`, `"k":7`), "keys[1].k: must be a string"},
		"wrong curve":       {replace(rfcEC, `P-256`, `P-384`), `keys[1].crv: "P-384" does not serve`},
		"no curve":          {replace(rfcEC, `"crv":"P-256",`, ``), "keys[1].crv: missing"},
		"not on the curve":  {replace(rfcEC, `"x":"MKB`, `"x":"AKB`), "keys[1].x: (x, y) is not a point"},
		"short coordinate":  {replace(rfcEC, `hp7x8PxltmWWlbbM4IFyM`, `hp7x8PxltmWWlbbM4IFw`), "keys[1].y: 31 bytes, needs 32"},
		"foreign d":         {replace(rfcEC, `"d":"870`, `"d":"070`), "keys[1].d: does not belong"},
		"foreign ed d":      {replace(rfcEd25519, `"d":"nWG`, `"d":"AWG`), "keys[1].d: does not belong"},
		"small RSA":         {rsaShort, "keys[1].n: 1024 bits, needs 2048..8192"},
		"not an object":     {`7`, "keys: must be an array"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := keys.Parse("keys.json", document(replace(rfcEC, `"e1"`, `"ok"`), tc.member))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "keys.json: ") {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "AAECAwQFBgcICQo") {
				t.Errorf("the error quotes the key: %v", err)
			}
		})
	}
	for name, content := range map[string]string{
		"empty":          ``,
		"no keys":        `{}`,
		"keys empty":     `{"keys":[]}`,
		"keys null":      `{"keys":null}`,
		"KEYS":           strings.Replace(string(document(oct32)), "keys", "KEYS", 1),
		"trailing":       string(document(oct32)) + "x",
		"a bare array":   `[` + oct32 + `]`,
		"too many":       string(document(strings.Split(strings.Repeat(oct32+" ", 65), " ")[:65]...)),
		"a huge file":    string(document(oct32)) + strings.Repeat(" ", keys.MaxFileBytes),
		"unclosed quote": `{"keys":[{"k":"AAECAwQFBgcICQo`,
	} {
		if _, err := keys.Parse("keys.json", []byte(content)); err == nil || strings.Contains(err.Error(), "AAECAwQFBgcICQo") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestParseReportsAllFaultsAtOnce(t *testing.T) {
	_, err := keys.Parse("keys.json", document(`{}`, oct32, `{"kid":"x"}`))
	if err == nil || !strings.Contains(err.Error(), "keys[0].kid: missing") || !strings.Contains(err.Error(), "keys[2].alg: missing") {
		t.Errorf("got %v", err)
	}
}

func TestNewKeysSurviveAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	var list []keys.Key
	for id, create := range map[string]func(string) (keys.Key, error){
		"oct": keys.NewOct, "ec": keys.NewEC, "okp": keys.NewEd25519, "rsa": keys.NewRSA,
	} {
		k, err := create(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := create("no spaces"); err == nil {
			t.Errorf("%s: took a bad kid", id)
		}
		list = append(list, k)
	}
	set, err := keys.NewSet(list...)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	got, err := keys.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range got.Keys() {
		if k.ID() != list[i].ID() || k.Alg() != list[i].Alg() {
			t.Errorf("%v came back as %v", list[i], k)
		}
		want, _ := list[i].SigningKey()
		back, _ := k.SigningKey()
		if w, ok := want.(interface{ Equal(crypto.PrivateKey) bool }); ok && !w.Equal(back) {
			t.Errorf("%v: another private key came back", k)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLoadOrCreateMakesOnceAndNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	create := func() (keys.Key, error) { return keys.NewOct("made") }
	first, err := keys.LoadOrCreate(path, create)
	if err != nil {
		t.Fatal(err)
	}
	second, err := keys.LoadOrCreate(path, create)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := first.First().Secret()
	b, _ := second.First().Secret()
	if string(a) != string(b) {
		t.Error("the second call made another key")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.LoadOrCreate(path, create); err == nil {
		t.Error("a broken file was replaced")
	}
}

func TestPublicHalfCannotSign(t *testing.T) {
	var member map[string]string
	if err := json.Unmarshal([]byte(rfcEC), &member); err != nil {
		t.Fatal(err)
	}
	delete(member, "d")
	public, err := json.Marshal(member)
	if err != nil {
		t.Fatal(err)
	}
	set, err := keys.Parse("public", document(string(public)))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := set.First().SigningKey(); ok {
		t.Error("a public key signs")
	}
	if set.First().VerifyingKey() == nil {
		t.Error("a public key does not verify")
	}
}

func TestMaterialIsNeverPrinted(t *testing.T) {
	set, err := keys.Parse("keys.json", document(oct32))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	slog.New(slog.NewJSONHandler(&out, nil)).Info("key", "key", set.First(), "set", set)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		fmt.Fprintf(&out, verb, set.First())
		fmt.Fprintf(&out, verb, set)
	}
	for _, secret := range []string{"AAECAw", "00010203", "0x0, 0x1", "[0 1 2", "\x00\x01\x02"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("printed %q: %s", secret, out.String())
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(document(oct32, rfcEC, rfcEd25519))
	f.Add([]byte(`{"keys":[{"kty":"RSA","alg":"RS256","kid":"r","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[null]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		set, err := keys.Parse("fuzz", content)
		if err != nil {
			return
		}
		again, err := set.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := keys.Parse("again", again)
		if err != nil || back.Len() != set.Len() {
			t.Fatalf("an accepted set does not survive: %v", err)
		}
	})
}
