package httpapi

import (
	"net/http"
	"strconv"

	"github.com/sluice-io/sluice/app/admission"
)

// The statuses that no outcome has: a document, and that its reader has it already.
const (
	statusDocument  = http.StatusOK
	statusUnchanged = http.StatusNotModified
)

// Send sends the body of a success. Its headers but for the length are the caller's
// to set, and so is what becomes of a request's body that nobody has read.
func Send(w http.ResponseWriter, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(statusDocument)
	_, _ = w.Write(body) // a reader that left has nothing to be told; net/http drops the body of an answer to HEAD
}

// Unchanged tells a reader that what it has is current. The headers are the caller's.
func Unchanged(w http.ResponseWriter) { w.WriteHeader(statusUnchanged) }

// SendJSON sends the body of a success, whether or not the request's was read.
func SendJSON(w http.ResponseWriter, r *http.Request, body []byte) {
	late := unreadBody(w, r, false)
	w.Header()["Content-Type"] = contentTypeJSON
	Send(w, body)
	if late {
		lateBody(w, r)
	}
}

// unready says why an instance wants no traffic.
func (r *Renderer) unready(w http.ResponseWriter, reasons []string) {
	h := w.Header()
	h["Content-Type"] = contentTypeJSON
	h["Cache-Control"] = noStore
	b := []byte(`{"status":"unready","reasons":[`)
	for i, reason := range reasons {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, reason)
	}
	b = append(b, "]}"...)
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(admission.DependencyUnavailable.Row().HTTP)
	_, _ = w.Write(b)
}
