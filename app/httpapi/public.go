package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sluice-io/sluice/app/admission"
)

// activity serves the public facts of an activity. server_time makes every answer
// differ, so the ETag is of everything else: a cache may keep what has not changed.
func (a *API) activity(c *gin.Context) {
	act := a.known(c)
	if act == nil {
		return
	}
	body := appendActivity(make([]byte, 0, 1024), act)
	etag := etagOf(body)
	h := c.Writer.Header()
	h["Etag"] = []string{etag}
	h["Cache-Control"] = []string{"public, max-age=5, stale-while-revalidate=30"}
	h["Vary"] = varyPublic
	if c.Request.Header.Get("If-None-Match") == etag {
		c.Status(http.StatusNotModified)
		c.Writer.WriteHeaderNow()
		return
	}
	body = append(body[:len(body)-1], `,"server_time":"`...)
	body = append(appendTime(body, a.d.Now()), `"}`...)
	writePublic(c, body)
}

// queue serves the one queue document that everybody polls.
func (a *API) queue(c *gin.Context) {
	act := a.known(c)
	if act == nil {
		return
	}
	body, maxAge := a.d.Room.Queue(act)
	age := strconv.Itoa(int(maxAge / time.Second))
	h := c.Writer.Header()
	h["Cache-Control"] = []string{"public, max-age=" + age + ", s-maxage=" + age}
	h["Vary"] = varyPublic
	writePublic(c, body)
}

// varyPublic: nothing but these two changes a public document.
var varyPublic = []string{"Accept-Encoding, Accept-Language"}

func writePublic(c *gin.Context, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = contentTypeJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.Status(http.StatusOK)
	_, _ = c.Writer.Write(body)
}

// known finds the activity of the path, or answers 404.
func (a *API) known(c *gin.Context) *admission.Activity {
	act := a.d.ByID(c.Param("activity"))
	if act == nil {
		a.refuseGuard(c, admission.NotFound)
	}
	return act
}

func appendActivity(b []byte, act *admission.Activity) []byte {
	b = append(b, '{')
	b = appendMember(b, "activity_id", act.ID)
	b = strconv.AppendInt(append(b, `"activity_version":`...), act.Version, 10)
	b = append(b, ',')
	b = appendMember(b, "path_id", act.PathID)
	b = appendMember(b, "name", act.Name)
	b = append(appendTime(append(b, `"opens_at":"`...), act.OpensAt), `",`...)
	b = append(appendTime(append(b, `"closes_at":"`...), act.ClosesAt), `",`...)
	b = append(b, `"fairness":{"mode":"`...)
	b = append(b, act.Fairness.Mode...)
	b = append(b, `","draw_closes_at":"`...)
	b = append(appendTime(b, act.DrawClosesAt()), '"')
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
	return append(b, "]}"...)
}

func etagOf(b []byte) string {
	sum := sha256.Sum256(bytes.TrimSpace(b))
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}
