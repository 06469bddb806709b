package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// Limits of the request guard (20-edge).
const (
	MaxBodyBytes      = 8 << 10
	bodyDeadline      = 2 * time.Second // a slow body holds a connection, never a seat
	maxTicketBytes    = 1024
	maxBearerBytes    = 4 << 10 // a session with a few claims is below 1 KiB
	maxPassBytes      = 1024
	maxChallengeBytes = 256
)

// guardBody decides on a body from its headers alone, before a byte of it is read.
// optional: the call may come without one (join, cancel).
func guardBody(r *http.Request, optional bool) admission.Outcome {
	if _, ok := r.Header["Expect"]; ok {
		return admission.ExpectationFailed
	}
	if r.ContentLength < 0 || r.ContentLength == 0 && !optional && len(r.Header["Content-Length"]) == 0 {
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
func readBody(c *gin.Context) ([]byte, admission.Outcome) {
	n := c.Request.ContentLength
	if n == 0 {
		return nil, admission.Pass
	}
	control := http.NewResponseController(c.Writer)
	_ = control.SetReadDeadline(time.Now().Add(bodyDeadline)) // unsupported only in tests without a connection
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body := make([]byte, n)
	if _, err := io.ReadFull(c.Request.Body, body); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, admission.BodyTimeout
		}
		return nil, admission.InvalidArgument // shorter than it said, or cut
	}
	return body, admission.Pass
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
