package page_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/httpapi/page"
)

func serve(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// assetsOf lists every asset that the page and its modules name.
func assetsOf(t *testing.T) map[string]*httptest.ResponseRecorder {
	t.Helper()
	p := newPage(t, nil)
	found := map[string]*httptest.ResponseRecorder{}
	html := serve(t, p.Activity, "/a/10001").Body.String()
	names := regexp.MustCompile(`"/assets/([^"]+)"`).FindAllStringSubmatch(html, -1)
	for len(names) > 0 {
		name := names[0][1]
		names = names[1:]
		if found[name] != nil {
			continue
		}
		w := serve(t, p.Assets, "/assets/"+name)
		if w.Code != http.StatusOK {
			t.Errorf("%s is named and answers %d", name, w.Code)
		}
		found[name] = w
		if strings.HasSuffix(name, ".js") {
			names = append(names, regexp.MustCompile(`(?:from|import) "\./([^"]+)"`).FindAllStringSubmatch(w.Body.String(), -1)...)
		}
	}
	return found
}

func TestEveryFileIsServedUnderItsHash(t *testing.T) {
	assets := assetsOf(t)
	sources, err := filepath.Glob("static/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(assets) != len(sources)-1 { // the page itself is no asset
		t.Errorf("the page names %d assets of %d files", len(assets), len(sources)-1)
	}
	for name, w := range assets {
		if !regexp.MustCompile(`^[a-z]+\.[0-9a-f]{16}\.(js|css|svg)$`).MatchString(name) {
			t.Errorf("%s has no hash in its name", name)
		}
		if got := w.Header().Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
		if strings.Contains(w.Body.String(), `"./`) && !regexp.MustCompile(`"\./[a-z]+\.[0-9a-f]{16}\.js"`).MatchString(w.Body.String()) {
			t.Errorf("%s imports a name without a hash", name)
		}
	}
}

func TestCaching(t *testing.T) {
	state := "OPEN"
	p := newPage(t, func(c *page.Config) { c.State = func(string) string { return state } })
	for _, c := range []struct{ state, want string }{{"OPEN", "public, max-age=60"}, {"", "public, max-age=60"}, {"SOLD_OUT", "public, max-age=1"}} {
		state = c.state
		w := serve(t, p.Activity, "/a/10001")
		if got := w.Header().Get("Cache-Control"); got != c.want || w.Code != http.StatusOK {
			t.Errorf("page while %q: %d, Cache-Control %q, want %q", c.state, w.Code, got, c.want)
		}
		if got := w.Header().Get("Vary"); got != "Accept-Encoding, Accept-Language" {
			t.Errorf("Vary %q", got)
		}
		if w.Header().Get("Set-Cookie") != "" {
			t.Error("a public page sets a cookie")
		}
	}
	if one, two := serve(t, p.Activity, "/a/10001").Body.String(), serve(t, p.Activity, "/a/42").Body.String(); one != two {
		t.Error("the page differs between activities")
	}
}

func TestNotFound(t *testing.T) {
	p := newPage(t, nil)
	for path, h := range map[string]http.Handler{
		"/assets/app.0000000000000000.js": p.Assets, "/assets/app.js": p.Assets, "/assets/": p.Assets, "/assets/../page.go": p.Assets,
		"/a/": p.Activity, "/a/x": p.Activity, "/a/01": p.Activity, "/a/1/2": p.Activity,
	} {
		w := serve(t, h, path)
		var body struct {
			Code string `json:"code"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusNotFound || body.Code != "NOT_FOUND" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: an error is cached: %q", path, got)
		}
	}
}

// Whoever types an address wrongly reads the page, which says so; a program gets the error.
func TestAMistypedAddressIsAPage(t *testing.T) {
	p := newPage(t, nil)
	for _, path := range []string{"/", "/a/", "/a/abc", "/a/01"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		w := httptest.NewRecorder()
		p.Activity.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), "<!doctype html>") || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d %v %.60s", path, w.Code, w.Header(), w.Body)
		}
	}
}

func TestEncodings(t *testing.T) {
	p := newPage(t, nil)
	plain := serve(t, p.Activity, "/a/1")
	for _, c := range []struct {
		accept string
		packed bool
	}{
		{"gzip", true}, {"br, gzip;q=0.8", true}, {"GZIP", true}, {"*", true}, {"deflate;q=1, *;q=0.5", true},
		{"", false}, {"identity", false}, {"gzip;q=0", false}, {"gzip; q=0.000, *", false}, {"*;q=0", false}, {"xgzip", false},
	} {
		w := serve(t, p.Activity, "/a/1", "Accept-Encoding", c.accept)
		packed := w.Header().Get("Content-Encoding") == "gzip"
		if packed != c.packed {
			t.Errorf("Accept-Encoding %q: gzip %v, want %v", c.accept, packed, c.packed)
			continue
		}
		body := w.Body.Bytes()
		if packed {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
			if w.Header().Get("ETag") == plain.Header().Get("ETag") {
				t.Error("two representations share a strong ETag")
			}
		}
		if !bytes.Equal(body, plain.Body.Bytes()) {
			t.Errorf("Accept-Encoding %q: another page", c.accept)
		}
	}
}

func TestConditional(t *testing.T) {
	p := newPage(t, nil)
	etag := serve(t, p.Activity, "/a/1").Header().Get("ETag")
	packed := serve(t, p.Activity, "/a/1", "Accept-Encoding", "gzip").Header().Get("ETag")
	for tag, want := range map[string]int{
		etag: 304, packed: 304, "W/" + etag: 304, `"x", ` + etag: 304, "*": 304, `"x"`: 200, strings.Trim(etag, `"`): 200,
	} {
		w := serve(t, p.Activity, "/a/1", "If-None-Match", tag)
		if w.Code != want || want == 304 && w.Body.Len() > 0 {
			t.Errorf("If-None-Match %s: %d with %d bytes, want %d", tag, w.Code, w.Body.Len(), want)
		}
		if w.Header().Get("Cache-Control") == "" {
			t.Errorf("If-None-Match %s: no Cache-Control", tag)
		}
	}
}

func TestPolicyHasNoException(t *testing.T) {
	p := newPage(t, nil)
	w := serve(t, p.Activity, "/a/1")
	policy := w.Header().Get("Content-Security-Policy")
	for _, must := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'self'", "require-trusted-types-for 'script'"} {
		if !slices.Contains(strings.Split(policy, "; "), must) {
			t.Errorf("the policy lacks %q: %s", must, policy)
		}
	}
	for _, never := range []string{"unsafe", "nonce", "sha256", "http", "*", "data:"} {
		if strings.Contains(policy, never) {
			t.Errorf("the policy has %q", never)
		}
	}
	html := w.Body.String()
	for _, inline := range []string{`<style`, ` style=`, ` onclick=`, ` onload=`, `javascript:`} {
		if strings.Contains(html, inline) {
			t.Errorf("the page has %s", inline)
		}
	}
	if n, src := strings.Count(html, "<script"), strings.Count(html, `<script type="module" src="/assets/`); n != src {
		t.Errorf("%d scripts, %d of them files", n, src)
	}
}

// Nothing is fetched from elsewhere, and no text becomes markup.
func TestNothingForeign(t *testing.T) {
	files, err := filepath.Glob("static/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source := strings.ReplaceAll(string(text), `xmlns="http://www.w3.org/2000/svg"`, "") // a name, never fetched
		if m := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]|url\(|@import|eval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc`).FindString(source); m != "" {
			t.Errorf("%s has %q", f, m)
		}
	}
}

func TestEveryWordInBothLanguages(t *testing.T) {
	source, err := os.ReadFile("static/words.js")
	if err != nil {
		t.Fatal(err)
	}
	dictionaries := regexp.MustCompile(`(?s)const (en|zh) = \{\n(.*?)\n\};`).FindAllStringSubmatch(string(source), -1)
	if len(dictionaries) != 2 {
		t.Fatalf("%d dictionaries, want 2", len(dictionaries))
	}
	entry := regexp.MustCompile(`(?m)^  (\w+): '(.*)',$`)
	hole := regexp.MustCompile(`\{\w+\}`)
	words := map[string]map[string]string{}
	for _, d := range dictionaries {
		words[d[1]] = map[string]string{}
		for _, line := range strings.Split(strings.ReplaceAll(d[2], "\n\n", "\n"), "\n") {
			m := entry.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: not an entry: %s", d[1], line)
				continue
			}
			if _, twice := words[d[1]][m[1]]; twice {
				t.Errorf("%s: %s is there twice", d[1], m[1])
			}
			words[d[1]][m[1]] = m[2]
		}
	}
	for key, text := range words["en"] {
		other, ok := words["zh"][key]
		if !ok {
			t.Errorf("%s is not said in Chinese", key)
		}
		holes, otherHoles := hole.FindAllString(text, -1), hole.FindAllString(other, -1)
		slices.Sort(holes)
		slices.Sort(otherHoles)
		if !slices.Equal(holes, otherHoles) {
			t.Errorf("%s: %v in English, %v in Chinese", key, holes, otherHoles)
		}
	}
	for key := range words["zh"] {
		if _, ok := words["en"][key]; !ok {
			t.Errorf("%s is not said in English", key)
		}
	}

	// What the scripts say exists, and what exists is said.
	modules, err := filepath.Glob("static/*.js")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, f := range modules {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if f == "static/words.js" { // what follows the dictionaries
			_, code, _ := strings.Cut(string(text), "const words =")
			text = []byte(code)
		}
		for _, m := range regexp.MustCompile(`say\('(\w+)'`).FindAllStringSubmatch(string(text), -1) {
			if words["en"][m[1]] == "" {
				t.Errorf("%s says %s, which is no word", f, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`['"](\w+)['"]`).FindAllStringSubmatch(string(text), -1) {
			said[m[1]], said[m[1]+"Text"] = true, true
		}
		if f == "static/phase.js" { // every phase has a headline
			for _, m := range regexp.MustCompile(`(?:return|[?:]) '(\w+)'`).FindAllStringSubmatch(string(text), -1) {
				if words["en"][m[1]] == "" {
					t.Errorf("the phase %s has no headline", m[1])
				}
			}
		}
	}
	for key := range words["en"] {
		if !said[key] {
			t.Errorf("%s is never said", key)
		}
	}
}
