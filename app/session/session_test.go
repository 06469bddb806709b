package session_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/session"
)

var now = time.Unix(1782388800, 0)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func setOf(t testing.TB, list ...keys.Key) keys.Set { return must[keys.Set](t)(keys.NewSet(list...)) }

func verifierOf(t testing.TB, cfg session.Config, list ...keys.Key) *session.Verifier {
	return must[*session.Verifier](t)(session.NewVerifier(setOf(t, list...), cfg))
}

// signed is a token of any claims and header, under a method and key of the test's choice.
func signed(t testing.TB, method jwt.SigningMethod, key any, header, claims map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims))
	for name, value := range header {
		token.Header[name] = value
	}
	return must[string](t)(token.SignedString(key))
}

func claims(edits ...any) map[string]any { // name, value, name, value …; a nil value removes the claim
	c := map[string]any{"sub": "70000001", "exp": now.Add(time.Hour).Unix()}
	for i := 0; i < len(edits); i += 2 {
		if edits[i+1] == nil {
			delete(c, edits[i].(string))
		} else {
			c[edits[i].(string)] = edits[i+1]
		}
	}
	return c
}

func TestMintedSessionsOfEveryKindAreVerified(t *testing.T) {
	for name, create := range map[string]func(string) (keys.Key, error){
		"oct": keys.NewOct, "EC": keys.NewEC, "OKP": keys.NewEd25519, "RSA": keys.NewRSA,
	} {
		k := must[keys.Key](t)(create(name))
		v := verifierOf(t, session.Config{Issuer: "idp", Audience: "sluice"}, must[keys.Key](t)(keys.NewOct("other")), k)
		raw := must[string](t)(session.Mint(k, session.MintClaims{
			UserID: "9223372036854775807", Region: "eu-1", Tier: "gold", Issuer: "idp", Audience: "sluice",
		}, time.Minute, now))
		want := session.Identity{UserID: "9223372036854775807", Region: "eu-1", Tier: "gold", ExpiresAt: now.Add(time.Minute)}
		for range 2 { // the second time from memory
			if got, reason := v.Verify(raw, now); reason != session.OK || got != want {
				t.Errorf("%s: %v, %+v", name, reason, got)
			}
		}
	}
}

func TestEveryReason(t *testing.T) {
	oct := must[keys.Key](t)(keys.NewOct("oct"))
	ed := must[keys.Key](t)(keys.NewEd25519("ed"))
	v := verifierOf(t, session.Config{Issuer: "idp", Audience: "sluice"}, oct, ed)
	secret, _ := oct.Secret()
	kid := map[string]any{"kid": "oct"}
	full := func(edits ...any) map[string]any {
		return claims(append([]any{"iss", "idp", "aud", []string{"web", "sluice"}}, edits...)...)
	}
	hs := func(c map[string]any) string { return signed(t, jwt.SigningMethodHS256, secret, kid, c) }
	good := hs(full())

	cases := map[string]struct {
		raw  string
		want session.Reason
	}{
		"good":                       {good, session.OK},
		"aud as one string":          {hs(full("aud", "sluice")), session.OK},
		"nbf within the leeway":      {hs(full("nbf", now.Unix()+2)), session.OK},
		"exp within the leeway":      {hs(full("exp", now.Unix()-1)), session.OK},
		"missing":                    {"", session.Missing},
		"too long":                   {strings.Repeat("a", session.MaxBytes+1), session.TooLong},
		"dots":                       {strings.Repeat(".", session.MaxBytes), session.Format},
		"not base64":                 {"a b.c.d", session.Format},
		"line break":                 {strings.Replace(good, ".", ".\n", 1), session.Format},
		"padded":                     {good + "=", session.Format},
		"critical extension":         {signed(t, jwt.SigningMethodHS256, secret, map[string]any{"kid": "oct", "crit": []string{"b64"}}, full()), session.Format},
		"unknown kid":                {signed(t, jwt.SigningMethodHS256, secret, map[string]any{"kid": "../../dev/null"}, full()), session.UnknownKey},
		"kid is a number":            {signed(t, jwt.SigningMethodHS256, secret, map[string]any{"kid": 7}, full()), session.UnknownKey},
		"no kid, two keys":           {signed(t, jwt.SigningMethodHS256, secret, nil, full()), session.UnknownKey},
		"other algorithm of the kty": {signed(t, jwt.SigningMethodHS512, secret, kid, full()), session.Algorithm},
		"key of another algorithm":   {signed(t, jwt.SigningMethodHS256, secret, map[string]any{"kid": "ed"}, full()), session.Algorithm},
		"alg unknown":                {unsigned(t, `{"alg":"XX999","kid":"oct"}`, full()), session.Algorithm},
		"wrong secret":               {signed(t, jwt.SigningMethodHS256, []byte("another secret of 32 bytes......"), kid, full()), session.Signature},
		"signature cut":              {good[:strings.LastIndexByte(good, '.')+1], session.Signature},
		"expired":                    {hs(full("exp", now.Unix()-2)), session.Expired},
		"exp of another age":         {hs(full("exp", 1e300)), session.Expired},
		"not yet":                    {hs(full("nbf", now.Unix()+3)), session.NotYet},
		"iss missing":                {hs(full("iss", nil)), session.Claims},
		"iss other":                  {hs(full("iss", "evil")), session.Issuer},
		"aud other":                  {hs(full("aud", "elsewhere")), session.Audience},
		"exp missing":                {hs(full("exp", nil)), session.Claims},
		"exp as text":                {hs(full("exp", "1882388800")), session.Claims},
		"EXP, case-folded":           {hs(full("exp", nil, "EXP", now.Unix()+60)), session.Claims},
		"region too long":            {hs(full("region", strings.Repeat("r", 33))), session.Claims},
		"region with a space":        {hs(full("region", "eu 1")), session.Claims},
		"tier as number":             {hs(full("tier", 1)), session.Claims},
		"sub missing":                {hs(full("sub", nil)), session.Subject},
		"sub as number":              {hs(full("sub", 70000001)), session.Subject},
		"sub with leading zero":      {hs(full("sub", "070000001")), session.Subject},
		"sub zero":                   {hs(full("sub", "0")), session.Subject},
		"sub over 2^63-1":            {hs(full("sub", "9223372036854775808")), session.Subject},
		"sub with space":             {hs(full("sub", "70000001 ")), session.Subject},
		"sub in wide digits":         {hs(full("sub", "７0000001")), session.Subject},
	}
	seen, labels := map[session.Reason]bool{}, map[string]bool{}
	for name, tc := range cases {
		got, reason := v.Verify(tc.raw, now)
		if reason != tc.want {
			t.Errorf("%s: got %v, want %v", name, reason, tc.want)
		}
		if reason != session.OK && got != (session.Identity{}) {
			t.Errorf("%s: a refusal names %+v", name, got)
		}
		seen[reason], labels[reason.String()] = true, true
	}
	if len(seen) != int(session.Reasons) || len(labels) != int(session.Reasons) {
		t.Errorf("%d reasons and %d labels seen, want %d", len(seen), len(labels), session.Reasons)
	}
}

func unsigned(t testing.TB, header string, claims map[string]any) string {
	t.Helper()
	payload := must[[]byte](t)(json.Marshal(claims))
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

// K02, for sessions: alg none in every case, and the public key used as an HMAC secret.
func TestK02_NoneAndKeyConfusion(t *testing.T) {
	rsaKey := must[keys.Key](t)(keys.NewRSA("rsa"))
	v := verifierOf(t, session.Config{}, rsaKey)
	for _, alg := range []string{"none", "None", "NONE", "nOnE", "", "HS256", "RS512"} {
		if _, reason := v.Verify(unsigned(t, fmt.Sprintf(`{"alg":%q,"kid":"rsa"}`, alg), claims()), now); reason != session.Algorithm {
			t.Errorf("alg %q: %v", alg, reason)
		}
	}
	for _, header := range []string{`{"kid":"rsa"}`, `{"alg":null,"kid":"rsa"}`, `{"alg":["RS256"],"kid":"rsa"}`} {
		if _, reason := v.Verify(unsigned(t, header, claims()), now); reason != session.Algorithm {
			t.Errorf("%s: %v", header, reason)
		}
	}
	none := signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, map[string]any{"kid": "rsa"}, claims())
	if _, reason := v.Verify(none, now); reason != session.Algorithm {
		t.Errorf("unsigned: %v", reason)
	}
	der := must[[]byte](t)(x509.MarshalPKIXPublicKey(rsaKey.VerifyingKey()))
	for _, kid := range []map[string]any{{"kid": "rsa"}, nil} {
		if _, reason := v.Verify(signed(t, jwt.SigningMethodHS256, der, kid, claims()), now); reason != session.Algorithm {
			t.Errorf("HS256 under the public key: %v", reason)
		}
	}
}

func TestASetOfOneNeedsNoKid(t *testing.T) {
	k := must[keys.Key](t)(keys.NewOct("only"))
	secret, _ := k.Secret()
	raw := signed(t, jwt.SigningMethodHS256, secret, nil, claims())
	if _, reason := verifierOf(t, session.Config{}, k).Verify(raw, now); reason != session.OK {
		t.Error(reason)
	}
}

func TestARememberedSessionEndsOnTime(t *testing.T) {
	k := must[keys.Key](t)(keys.NewOct("k"))
	v := verifierOf(t, session.Config{}, k)
	raw := must[string](t)(session.Mint(k, session.MintClaims{UserID: "7"}, time.Minute, now))
	end := now.Add(time.Minute + session.DefaultLeeway)
	for _, tc := range []struct {
		at   time.Time
		want session.Reason
	}{
		{now, session.OK},
		{end.Add(-time.Nanosecond), session.OK},
		{end, session.Expired},
	} {
		if _, reason := v.Verify(raw, tc.at); reason != tc.want {
			t.Errorf("after %v: %v, want %v", tc.at.Sub(now), reason, tc.want)
		}
	}
}

func TestAKeyChangeForgetsWhatTheOldKeysVerified(t *testing.T) {
	old, next := must[keys.Key](t)(keys.NewOct("k")), must[keys.Key](t)(keys.NewOct("k"))
	v := verifierOf(t, session.Config{}, old)
	raw := must[string](t)(session.Mint(old, session.MintClaims{UserID: "7"}, time.Minute, now))
	if _, reason := v.Verify(raw, now); reason != session.OK {
		t.Fatal(reason)
	}
	if err := v.Swap(keys.Set{}); err == nil {
		t.Error("an empty set replaced good keys")
	}
	if _, reason := v.Verify(raw, now); reason != session.OK {
		t.Fatal(reason)
	}
	if err := v.Swap(setOf(t, next)); err != nil {
		t.Fatal(err)
	}
	if _, reason := v.Verify(raw, now); reason != session.Signature {
		t.Errorf("got %v", reason)
	}
	if err := v.Swap(setOf(t, old)); err != nil {
		t.Fatal(err)
	}
	if _, reason := v.Verify(raw, now); reason != session.OK {
		t.Errorf("got %v", reason)
	}
}

func TestSwapDuringVerify(t *testing.T) {
	a, b := must[keys.Key](t)(keys.NewOct("a")), must[keys.Key](t)(keys.NewOct("b"))
	v := verifierOf(t, session.Config{Remember: 64}, a, b)
	var raws []string
	for user := range 200 { // more than are remembered
		raws = append(raws, must[string](t)(session.Mint(a, session.MintClaims{UserID: fmt.Sprint(user + 1)}, time.Minute, now)))
	}
	var all sync.WaitGroup
	all.Go(func() {
		sets := []keys.Set{setOf(t, a), setOf(t, a, b)}
		for i := range 200 {
			if err := v.Swap(sets[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		all.Go(func() {
			for range 3 {
				for user, raw := range raws {
					if id, reason := v.Verify(raw, now); reason != session.OK || id.UserID != fmt.Sprint(user+1) {
						t.Errorf("user %d: %v, %+v", user+1, reason, id)
					}
				}
			}
		})
	}
	all.Wait()
}

func TestMintRefusesWhatAVerifierWould(t *testing.T) {
	k := must[keys.Key](t)(keys.NewOct("k"))
	for name, err := range map[string]error{
		"user":   second(session.Mint(k, session.MintClaims{UserID: "x"}, time.Minute, now)),
		"ttl":    second(session.Mint(k, session.MintClaims{UserID: "7"}, time.Millisecond, now)),
		"region": second(session.Mint(k, session.MintClaims{UserID: "7", Region: "a b"}, time.Minute, now)),
		"key":    second(session.Mint(keys.Key{}, session.MintClaims{UserID: "7"}, time.Minute, now)),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ string, err error) error { return err }

func TestConfigIsChecked(t *testing.T) {
	k := must[keys.Key](t)(keys.NewOct("k"))
	for _, cfg := range []session.Config{{Leeway: -1}, {Leeway: time.Hour}, {Remember: -1}, {Remember: 1 << 30}} {
		if _, err := session.NewVerifier(setOf(t, k), cfg); err == nil {
			t.Errorf("took %+v", cfg)
		}
	}
}

func TestRecallAllocatesNothing(t *testing.T) {
	k := must[keys.Key](t)(keys.NewEC("k"))
	v := verifierOf(t, session.Config{}, k)
	raw := must[string](t)(session.Mint(k, session.MintClaims{UserID: "70000001"}, time.Minute, now))
	v.Verify(raw, now)
	if n := testing.AllocsPerRun(100, func() { v.Verify(raw, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzVerify(f *testing.F) {
	k := must[keys.Key](f)(keys.NewOct("k"))
	v := verifierOf(f, session.Config{}, k)
	good := must[string](f)(session.Mint(k, session.MintClaims{UserID: "7"}, time.Minute, now))
	for _, seed := range []string{good, "", "..", "e30.e30.", good + ".", unsigned(f, `{"alg":"none"}`, claims())} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if id, reason := v.Verify(raw, now); reason == session.OK && (raw != good || id.UserID != "7") {
			t.Fatalf("accepted %q as %+v", raw, id)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	k := must[keys.Key](b)(keys.NewOct("k"))
	raw := must[string](b)(session.Mint(k, session.MintClaims{UserID: "70000001"}, time.Minute, now))
	b.Run("remembered", func(b *testing.B) {
		v := verifierOf(b, session.Config{}, k)
		b.ReportAllocs()
		for b.Loop() {
			v.Verify(raw, now)
		}
	})
	b.Run("first", func(b *testing.B) {
		raws := make([]string, 4096) // more than are remembered, so that each time is a first one
		for i := range raws {
			raws[i] = must[string](b)(session.Mint(k, session.MintClaims{UserID: fmt.Sprint(i + 1)}, time.Minute, now))
		}
		v := verifierOf(b, session.Config{Remember: 64}, k)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			v.Verify(raws[i%len(raws)], now)
		}
	})
}
