package httpapi

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// Limits of the request guard (20-edge).
const (
	MaxBodyBytes      = 8 << 10
	bodyDeadline      = 2 * time.Second        // a slow body holds a connection, never a seat
	lateStream        = 250 * time.Millisecond // for the body of a stream that was answered without it
	maxTicketBytes    = 1024
	maxBearerBytes    = 4 << 10 // a session with a few claims is below 1 KiB
	maxPassBytes      = 1024
	maxChallengeBytes = 256
)

// guardBody decides on a body from its headers alone, before a byte of it is read.
// optional: the call may come without one (join, cancel), with a length of 0 and no type.
func guardBody(r *http.Request, optional bool) admission.Outcome {
	if expects(r) {
		return admission.ExpectationFailed
	}
	if !lengthKnown(r) {
		return admission.LengthRequired
	}
	if r.ContentLength > MaxBodyBytes {
		return admission.BodyTooLarge
	}
	if enc := r.Header["Content-Encoding"]; len(enc) > 0 && (len(enc) > 1 || !strings.EqualFold(enc[0], "identity")) {
		return admission.UnsupportedMediaType
	}
	if optional && r.ContentLength == 0 && len(r.Header["Content-Type"]) == 0 {
		return admission.Pass
	}
	if !isJSON(r.Header["Content-Type"]) {
		return admission.UnsupportedMediaType
	}
	return admission.Pass
}

// expects reports an Expect header: nothing here waits for a "100 Continue". One that net/http
// does not know never comes so far, it is answered 417 there.
func expects(r *http.Request) bool {
	_, ok := r.Header["Expect"]
	return ok
}

// lengthKnown reports whether the request says how long its body is: by Content-Length,
// or in HTTP/2 by ending the stream with the headers.
func lengthKnown(r *http.Request) bool {
	return r.ContentLength > 0 || r.ContentLength == 0 && (len(r.Header["Content-Length"]) > 0 || r.ProtoMajor > 1)
}

// isJSON accepts application/json, alone or with a charset of UTF-8.
func isJSON(types []string) bool {
	if len(types) != 1 {
		return false
	}
	t := types[0]
	if t == "application/json" {
		return true
	}
	media, params, found := strings.Cut(t, ";")
	if !strings.EqualFold(strings.TrimSpace(media), "application/json") {
		return false
	}
	if !found {
		return true
	}
	name, value, _ := strings.Cut(strings.TrimSpace(params), "=")
	return strings.EqualFold(name, "charset") && strings.EqualFold(strings.Trim(value, `"`), "utf-8")
}

// readBody reads the whole declared body within bodyDeadline.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, admission.Outcome) {
	n := r.ContentLength
	if n == 0 {
		return nil, admission.Pass
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyDeadline)) // unsupported only without a connection
	body := make([]byte, n)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		// The deadline stays: net/http still looks for the rest before it lets go.
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, admission.BodyTimeout
		}
		return nil, admission.InvalidArgument // shorter than it said, or cut
	}
	// While the answer is made net/http watches the connection; a deadline that passes
	// then would look like a client that left.
	_ = control.SetReadDeadline(time.Time{})
	r.Body = http.NoBody // read: nothing is left to settle
	return body, admission.Pass
}

// unreadBody decides, before the answer is written, what becomes of a body that nobody
// has read; net/http would wait for it before it sends the answer. The connection ends
// after a refusal of the guard, or when the body has no bound that we accept. Every
// other client keeps its connection: late is true, the answer goes out at once, and
// lateBody must follow it.
func unreadBody(w http.ResponseWriter, r *http.Request, byGuard bool) (late bool) {
	if r.ContentLength == 0 || r.Body == http.NoBody {
		return false
	}
	if r.ProtoMajor > 1 {
		// HTTP/2 resets a stream whose body nobody reads, and some clients then drop the
		// answer that they have. A small one is taken after the answer; the connection stays.
		return r.ContentLength > 0 && r.ContentLength <= MaxBodyBytes
	}
	if byGuard || r.ContentLength < 0 || r.ContentLength > MaxBodyBytes {
		w.Header()["Connection"] = connectionClose
		_ = http.NewResponseController(w).SetReadDeadline(longAgo) // net/http would read on after the answer
		return false
	}
	return http.NewResponseController(w).EnableFullDuplex() == nil
}

// longAgo ends every read.
var longAgo = time.Unix(1, 0)

// lateBody sends the answer and then takes what is left of the body, which is small and
// mostly here already. In HTTP/1.1 a body that does not come within bodyDeadline ends the
// connection: what followed it could not be told from the next request. A stream of HTTP/2
// has frames of its own and just ends; its client may have stopped sending at our answer,
// and reads that to its end only when the stream has ended.
func lateBody(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.Flush() // a client that left has nothing to be told
	within := bodyDeadline
	if r.ProtoMajor > 1 {
		within = lateStream
	}
	_ = control.SetReadDeadline(time.Now().Add(within))
	if _, err := io.Copy(io.Discard, r.Body); err != nil && r.ProtoMajor == 1 {
		panic(http.ErrAbortHandler)
	}
	_ = control.SetReadDeadline(time.Time{})
}

// guarded are the outcomes of the request guard: the caller does not speak our contract.
func guarded(o admission.Outcome) bool {
	return admission.NotFound <= o && o <= admission.ExpectationFailed
}

// plainPath refuses what two programs on the way could read differently: a double
// slash, and a query that gives one key twice; and an Expect, which calls without a body
// have no use for either.
func (a *API) plainPath(c *gin.Context) {
	switch u := c.Request.URL; {
	case strings.Contains(u.Path, "//"):
		a.refuseGuard(c, admission.NotFound)
		c.Abort()
	case u.RawQuery != "" && c.FullPath() != "" && repeatedKey(u.RawQuery):
		a.refuseGuard(c, admission.InvalidArgument)
		c.Abort()
	case c.FullPath() != "" && expects(c.Request):
		a.refuseGuard(c, admission.ExpectationFailed)
		c.Abort()
	}
}

// repeatedKey reports whether a query gives a key twice or cannot be read.
func repeatedKey(raw string) bool {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return true
	}
	for _, values := range q {
		if len(values) > 1 {
			return true
		}
	}
	return false
}

// header returns a header's only value. Repeated and overlong ones are refused: two
// programs on the way may have believed different ones.
func header(r *http.Request, canonical string, maxLen int) (value string, ok bool) {
	v := r.Header[canonical]
	switch {
	case len(v) == 0:
		return "", true
	case len(v) > 1 || len(v[0]) > maxLen:
		return "", false
	}
	return v[0], true
}

// bearer returns the session of the Authorization header, "" when there is none.
func bearer(r *http.Request) string {
	v, ok := header(r, "Authorization", maxBearerBytes)
	const scheme = "Bearer "
	if !ok || len(v) <= len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
		return ""
	}
	return v[len(scheme):]
}
