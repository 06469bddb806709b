// Package page is what a shopper sees: one static page for every activity, and its assets.
//
// The page is the same bytes for everybody, so that a cache carries the crowd: its
// script reads the activity's id from the address and takes all that changes from the
// two public documents. Assets have their hash in their name and are kept for a year; a
// new release has new names. Nothing is compiled or compressed per request, nothing
// comes from a third party, and the content security policy has no exception: no
// inline script or style, and no markup made from strings.
//
// It depends on nothing. When the rest of Sluice is away the page says that the
// connection is lost and that the place is kept, and goes on asking, ever more rarely.
//
// A site in front of Sluice hands its visitor's session over in one of two ways, both
// of which need the same origin (static/session.js): it writes the session into
// localStorage as "sluice.session" before or while the page is open, or it posts
// {type: "sluice.session", session: "…"} to the page's window. A gateway that sets the
// identity header needs neither. Config.DevelopmentSignIn shows a field for a user id.
package page

import (
	"net/http"
	"strings"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/httpapi"
)

// Config is what New needs.
type Config struct {
	// State is the activity's state in its queue document, "" when it is not known. A
	// page that may be reopened at any moment ("SOLD_OUT") is cached for a second only.
	// nil: no state is known.
	State func(activityID string) string
	// NotFound answers for what is no activity's page and no asset of this release.
	NotFound http.Handler
	// DevelopmentSignIn lets anybody be any user: POST /v1/session exists.
	DevelopmentSignIn bool
}

// Page is the page and its assets, ready to be served.
type Page struct {
	Activity http.Handler // GET, HEAD /a/{activity}
	Assets   http.Handler // GET, HEAD /assets/{hashed name}
}

// The cache table of 20-edge.
const (
	cacheAsset   = "public, max-age=31536000, immutable"
	cachePage    = "public, max-age=60"
	cacheSoldOut = "public, max-age=1"
)

const stateSoldOut = "SOLD_OUT"

// New reads, links and compresses the embedded files once. It fails only when they
// name each other wrongly, which a test excludes.
func New(c Config) (*Page, error) {
	index, assets, err := build(c.DevelopmentSignIn)
	if err != nil {
		return nil, err
	}
	return &Page{
		Activity: &activity{config: c, page: index},
		Assets:   &shelf{assets: assets, notFound: c.NotFound},
	}, nil
}

// activity serves the one page under every activity's address.
type activity struct {
	config Config
	page   *file
}

func (a *activity) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := strings.CutPrefix(r.URL.Path, "/a/")
	known := ok && admission.ValidDecimal(id)
	if !known && !httpapi.ReadsHTML(r) {
		a.config.NotFound.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	for name, value := range pageHeaders {
		h[name] = value
	}
	cache := cachePage
	switch {
	case !known: // who asks for something else gets another answer
		cache = "no-store"
	case a.config.State != nil && a.config.State(id) == stateSoldOut:
		cache = cacheSoldOut
	}
	a.page.serve(w, r, cache)
}

// shelf serves assets by their hashed names.
type shelf struct {
	assets   map[string]*file
	notFound http.Handler
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.assets[strings.TrimPrefix(r.URL.Path, assetPrefix)]
	if f == nil {
		s.notFound.ServeHTTP(w, r)
		return
	}
	w.Header()["X-Content-Type-Options"] = noSniff
	f.serve(w, r, cacheAsset)
}

// contentPolicy allows what this release serves, and nothing else. Text reaches the
// document through textContent alone; trusted types make the browser hold us to it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

var (
	noSniff     = []string{"nosniff"}
	pageHeaders = map[string][]string{
		"Content-Security-Policy":    {contentPolicy},
		"Cross-Origin-Opener-Policy": {"same-origin"},
		"Referrer-Policy":            {"no-referrer"}, // the address says which sale somebody is at
		"X-Content-Type-Options":     noSniff,
	}
	vary = []string{"Accept-Encoding, Accept-Language"}
)

// file is one answer, in both encodings.
type file struct {
	contentType []string
	plain       encoded
	gzip        encoded // no body: not smaller
}

// encoded is one representation. Each has its own strong ETag.
type encoded struct {
	body []byte
	etag []string
}

// serve sends the file, or says that the client has it.
func (f *file) serve(w http.ResponseWriter, r *http.Request, cache string) {
	h := w.Header()
	h["Cache-Control"] = []string{cache}
	h["Vary"] = vary
	body := &f.plain
	if f.gzip.body != nil && acceptsGzip(r.Header["Accept-Encoding"]) {
		body = &f.gzip
	}
	h["Etag"] = body.etag
	if known(r.Header["If-None-Match"], f.plain.etag[0], f.gzip.etag) {
		httpapi.Unchanged(w)
		return
	}
	h["Content-Type"] = f.contentType
	if body == &f.gzip {
		h["Content-Encoding"] = gzipEncoding
	}
	httpapi.Send(w, body.body)
}

var gzipEncoding = []string{"gzip"}

// known reports whether If-None-Match names either representation: a client that has
// one of them needs neither.
func known(headers []string, plain string, gzip []string) bool {
	for _, line := range headers {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
			if tag == "*" || tag == plain || len(gzip) == 1 && tag == gzip[0] {
				return true
			}
		}
	}
	return false
}

// acceptsGzip reports whether Accept-Encoding names gzip (or anything) without q=0.
func acceptsGzip(headers []string) bool {
	star := false
	for _, line := range headers {
		for item := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(item, ";")
			coding = strings.TrimSpace(coding)
			refused := refuses(params)
			if strings.EqualFold(coding, "gzip") {
				return !refused
			}
			if coding == "*" {
				star = !refused
			}
		}
	}
	return star
}

// refuses reports a weight of zero: "q=0", "q=0.0", "q=0.00", "q=0.000".
func refuses(params string) bool {
	name, value, _ := strings.Cut(strings.TrimSpace(params), "=")
	return strings.EqualFold(strings.TrimSpace(name), "q") && strings.Trim(strings.TrimSpace(value), "0.") == "" && value != ""
}
