package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// Document is one of the public documents, as a metric label.
type Document string

// The public documents.
const (
	DocumentActivity Document = "activity"
	DocumentQueue    Document = "queue"
	DocumentPage     Document = "page"
	DocumentAsset    Document = "asset"
)

// activity serves the public facts of an activity. server_time makes every answer
// differ, so the ETag is of everything else, and weak: a cache may keep what means the same.
func (a *API) activity(c *gin.Context) {
	act := a.known(c)
	if act == nil {
		return
	}
	a.d.Served(DocumentActivity)
	body := appendActivity(make([]byte, 0, 1024), act, a.d.Room.Commitment(act))
	etag := etagOf(body)
	h := c.Writer.Header()
	h["Etag"] = []string{etag}
	h["Cache-Control"] = activityCache
	h["Vary"] = varyPublic
	if matches(c.Request.Header["If-None-Match"], etag) {
		unreadBody(c.Writer, c.Request, true)
		Unchanged(c.Writer)
		return
	}
	body = append(body[:len(body)-1], `,"server_time":"`...)
	body = append(appendTime(body, a.d.Now()), `"}`...)
	SendJSON(c.Writer, c.Request, body)
}

// queue serves the one queue document that everybody polls.
func (a *API) queue(c *gin.Context) {
	act := a.known(c)
	if act == nil {
		return
	}
	a.d.Served(DocumentQueue)
	body, maxAge := a.d.Room.Queue(act)
	age := strconv.Itoa(int(maxAge / time.Second))
	h := c.Writer.Header()
	h["Cache-Control"] = []string{"public, max-age=" + age + ", s-maxage=" + age}
	h["Vary"] = varyPublic
	SendJSON(c.Writer, c.Request, body)
}

// static serves the page or an asset.
func (a *API) static(doc Document, h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		a.d.Served(doc)
		unreadBody(c.Writer, c.Request, true) // nobody who asks for a page sends a body
		h.ServeHTTP(c.Writer, c.Request)
	}
}

var (
	activityCache = []string{"public, max-age=5, stale-while-revalidate=30"}
	varyPublic    = []string{"Accept-Encoding, Accept-Language"} // nothing else changes a public document
)

// known finds the activity of the path, or answers 404.
func (a *API) known(c *gin.Context) *admission.Activity {
	act := a.d.ByID(c.Param("activity"))
	if act == nil {
		a.refuseGuard(c, a.unknown())
	}
	return act
}

// ReadsHTML reports a person with a browser, who gets the page, which says that there is no such sale,
// as it does for a number that is none; who asks for anything else gets the error.
func ReadsHTML(r *http.Request) bool {
	for _, line := range r.Header["Accept"] {
		if strings.Contains(line, "text/html") {
			return true
		}
	}
	return false
}

func appendActivity(b []byte, act *admission.Activity, commitment string) []byte {
	b = append(b, '{')
	b = appendMember(b, "activity_id", act.ID)
	b = strconv.AppendInt(append(b, `"activity_version":`...), act.Version, 10)
	b = append(b, ',')
	b = appendMember(b, "path_id", act.PathID)
	b = appendMember(b, "name", act.Name)
	b = append(appendTime(append(b, `"opens_at":"`...), act.OpensAt), `",`...)
	b = append(appendTime(append(b, `"closes_at":"`...), act.ClosesAt), `",`...)
	b = append(b, `"fairness":{`...)
	b = appendMember(b, "mode", string(act.Fairness.Mode))
	b = appendMember(b, "draw_commitment", commitment)
	b = append(appendTime(append(b, `"draw_closes_at":"`...), act.DrawClosesAt()), '"')
	if len(act.Fairness.Weights) > 0 {
		b = append(b, `,"weights":`...)
		b = appendWeights(b, act.Fairness.Weights)
	}
	b = append(b, `},"skus":[`...)
	for i := range act.SKUs {
		s := &act.SKUs[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendMember(b, "sku_id", s.ID)
		b = appendMember(b, "name", s.Name)
		b = append(b, `"price":{`...)
		b = appendMember(b, "amount", s.Price.Amount)
		b = append(appendString(append(b, `"currency":`...), s.Price.Currency), '}')
		b = strconv.AppendInt(append(b, `,"limit_per_user":`...), s.LimitPerUser, 10)
		b = append(b, '}')
	}
	b = strconv.AppendBool(append(b, `],"rebuy_after_cancel":`...), act.RebuyAfterCancel)
	b = strconv.AppendInt(append(b, `,"max_attempts":`...), act.MaxAttempts, 10)
	return append(b, '}')
}

func etagOf(b []byte) string {
	sum := sha256.Sum256(b)
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// matches compares If-None-Match weakly (RFC 9110, 13.1.2).
func matches(lines []string, etag string) bool {
	for _, line := range lines {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}
