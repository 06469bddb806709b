package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed static
var static embed.FS

const (
	assetPrefix = "/assets/"
	indexName   = "index.html"
	hashLen     = 16 // hex digits of SHA-256: 64 bits, far from any collision among a few files
)

// Names that the sources use for each other. They become hashed names.
var (
	importOf = regexp.MustCompile(`(from |import )"\./([a-z]+\.js)"`)
	assetOf  = regexp.MustCompile(`"/assets/([a-z]+\.(?:js|css|svg))"`)
)

// preload stands in the page for one line per module, so that a browser fetches them
// all at once and not one after the other as it comes upon their imports.
const preload = `<link rel="modulepreload" href="/assets/*">`

// signInMeta tells the script who signs people in.
const (
	signInSite        = `<meta name="sluice-sign-in" content="site">`
	signInDevelopment = `<meta name="sluice-sign-in" content="development">`
)

// linker gives every embedded file its hashed name. A module's hash covers the hashed
// names of its imports: a change in one changes the name of all that use it.
type linker struct {
	names  map[string]string // "app.js" -> "app.<hash>.js"; "" while being linked
	assets map[string]*file  // by hashed name
}

// build links the assets and the page that names them.
func build(developmentSignIn bool) (index *file, assets map[string]*file, err error) {
	l := &linker{names: map[string]string{}, assets: map[string]*file{}}
	entries, err := static.ReadDir("static")
	if err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	for _, e := range entries {
		if e.Name() == indexName {
			continue
		}
		if _, err := l.link(e.Name()); err != nil {
			return nil, nil, err
		}
	}
	source, err := static.ReadFile("static/" + indexName)
	if err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	text := strings.Replace(string(source), preload, l.preloads(), 1)
	if developmentSignIn {
		text = strings.Replace(text, signInSite, signInDevelopment, 1)
	}
	text, err = l.rewrite(text, assetOf, func(m []string, hashed string) string { return `"` + assetPrefix + hashed + `"` })
	if err != nil {
		return nil, nil, err
	}
	index, err = newFile(indexName, []byte(text))
	return index, l.assets, err
}

// link returns the hashed name of a file, linking what it imports first.
func (l *linker) link(name string) (string, error) {
	if hashed, ok := l.names[name]; ok {
		if hashed == "" {
			return "", fmt.Errorf("page: %s imports itself", name)
		}
		return hashed, nil
	}
	l.names[name] = ""
	source, err := static.ReadFile("static/" + name)
	if err != nil {
		return "", fmt.Errorf("page: %w", err)
	}
	text := string(source)
	if path.Ext(name) == ".js" {
		text, err = l.rewrite(text, importOf, func(m []string, hashed string) string { return m[1] + `"./` + hashed + `"` })
		if err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(text))
	ext := path.Ext(name)
	hashed := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:])[:hashLen] + ext
	l.names[name] = hashed
	l.assets[hashed], err = newFile(name, []byte(text))
	return hashed, err
}

// rewrite replaces every name that re finds (its last group) by the hashed one.
func (l *linker) rewrite(text string, re *regexp.Regexp, spell func(match []string, hashed string) string) (string, error) {
	var failed error
	text = re.ReplaceAllStringFunc(text, func(found string) string {
		m := re.FindStringSubmatch(found)
		hashed, err := l.link(m[len(m)-1])
		if err != nil {
			failed = err
			return found
		}
		return spell(m, hashed)
	})
	return text, failed
}

// preloads names every module, in a fixed order.
func (l *linker) preloads() string {
	var lines []string
	for name := range l.names {
		if path.Ext(name) == ".js" {
			lines = append(lines, strings.Replace(preload, "*", name, 1))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n  ")
}

// newFile prepares both encodings.
func newFile(name string, body []byte) (*file, error) {
	contentType, ok := contentTypes[path.Ext(name)]
	if !ok {
		return nil, fmt.Errorf("page: %s has no content type", name)
	}
	sum := sha256.Sum256(body)
	etag := hex.EncodeToString(sum[:])[:hashLen]
	f := &file{contentType: []string{contentType}, plain: represent(body, etag)}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("page: %s: %w", name, err)
	}
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("page: %s: %w", name, err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("page: %s: %w", name, err)
	}
	if packed.Len() < len(body) {
		f.gzip = represent(packed.Bytes(), etag+"-gz")
	}
	return f, nil
}

func represent(body []byte, etag string) encoded {
	return encoded{body: body, etag: []string{`"` + etag + `"`}}
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}
