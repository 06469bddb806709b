package httpapi

import (
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sluice-io/sluice/app/admission"
)

// Answer is what a caller is told: an outcome with the facts that belong to it.
// Empty members are left out.
type Answer struct {
	Outcome       admission.Outcome
	Current       admission.Outcome // of Replayed: the request's current result
	RequestID     string            // the caller's own
	ExistingID    string            // existing_request_id
	ReservationID string
	OrderID       string
	Field         string // what to fix
	Detail        string // how
	TooFew        bool   // of SoldOut: units are left, fewer than wanted
	RetryAfter    time.Duration
	PollAfter     time.Duration // of answers that are polled
	Standing      admission.Standing
	Challenge     *admission.Challenge
	Errors        []admission.FieldError // every fault of a document; admin calls
	Quota         admission.Quota        // of the user dimension
}

// closedRetryAfter is what a CLOSED sale tells everybody, without jitter: it is so
// long that spreading it further would only make people wait more.
const closedRetryAfter = 30 * time.Second

// Renderer turns answers into HTTP. The outcome table and the files of render are the only
// places where an HTTP status appears; a test holds them to it.
type Renderer struct {
	now    func() time.Time
	jitter func() float64 // uniform in [0,1): spreads those who were told the same wait
}

// NewRenderer takes the wall clock and a source of uniform numbers in [0,1).
func NewRenderer(now func() time.Time, jitter func() float64) *Renderer {
	return &Renderer{now: now, jitter: jitter}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Write sends the answer, whether or not the request's body was read.
func (r *Renderer) Write(w http.ResponseWriter, req *http.Request, a Answer) {
	row := a.Outcome.Row()
	late := unreadBody(w, req, guarded(a.Outcome))
	h := w.Header()
	h["Content-Type"] = contentTypeJSON
	h["Cache-Control"] = noStore
	if a.Outcome == admission.LengthRequired && req.ProtoMajor == 1 {
		h["Connection"] = connectionClose // what follows may be the body that it did not announce
	}
	retry := r.retryAfter(a)
	if retry > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(max(1, ceilDiv(int64(retry), int64(time.Second))), 10)}
	}
	if row.HTTP == http.StatusUnauthorized && h["Www-Authenticate"] == nil {
		h["Www-Authenticate"] = bearerScheme
	}
	writeQuota(h, a.Quota)
	buf := buffers.Get().(*[]byte)
	b := r.appendAnswer((*buf)[:0], a, row, retry, prefersChinese(req.Header["Accept-Language"]))
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(row.HTTP)
	_, _ = w.Write(b) // a caller that left has nothing to be told
	*buf = b
	buffers.Put(buf)
	if late {
		lateBody(w, req)
	}
}

var (
	contentTypeJSON = []string{"application/json; charset=utf-8"}
	noStore         = []string{"no-store"}
	connectionClose = []string{"close"}
	bearerScheme    = []string{"Bearer"} // a 401 must name one (RFC 9110, 15.5.2)
)

// retryAfter is ceil(true wait) + jitter in whole milliseconds; never short. The
// jitter is a tenth of the wait within minSpread and maxSpread, so that callers who were
// refused together do not come back together, and nobody misses an opening.
func (r *Renderer) retryAfter(a Answer) time.Duration {
	if a.Outcome == admission.OverloadedClosed {
		return closedRetryAfter
	}
	wait := a.RetryAfter
	if wait <= 0 {
		switch {
		case !a.Outcome.Row().Retryable, a.PollAfter > 0, a.Outcome == admission.ChallengeRequired:
			return 0
		}
		wait = time.Second // a retryable refusal that knows no time
	}
	wait = min(wait, longestRetry)
	spread := min(max(wait/10, minSpread), maxSpread)
	return ceilMilli(wait) + time.Duration(float64(spread)*r.jitter()).Truncate(time.Millisecond)
}

const (
	minSpread    = 50 * time.Millisecond
	maxSpread    = 2 * time.Second
	longestRetry = admission.MaxActivityLen // nothing that is waited for is further away
)

// pollAfter spreads pollers over +-25 % of the hint.
func (r *Renderer) pollAfter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(float64(d) * (0.75 + 0.5*r.jitter())).Truncate(time.Millisecond)
}

func (r *Renderer) appendAnswer(b []byte, a Answer, row admission.Row, retry time.Duration, chinese bool) []byte {
	status := row.Status
	if a.Outcome == admission.Replayed {
		status = a.Current.Row().Status
	}
	message := row.English
	if chinese {
		message = row.Chinese
	}
	switch {
	case a.TooFew && chinese:
		message = admission.TooFewChinese
	case a.TooFew:
		message = admission.TooFewEnglish
	}
	b = append(b, '{')
	b = appendMember(b, "request_id", a.RequestID)
	b = appendMember(b, "existing_request_id", a.ExistingID)
	b = appendMember(b, "reservation_id", a.ReservationID)
	b = appendMember(b, "order_id", a.OrderID)
	b = appendMember(b, "status", string(status))
	b = appendMember(b, "code", row.Code)
	b = appendMember(b, "message", message)
	b = appendMember(b, "field", a.Field)
	b = appendMember(b, "detail", a.Detail)
	b = appendErrors(b, a.Errors)
	b = appendStanding(b, a.Standing)
	if c := a.Challenge; c != nil {
		b = append(b, `"challenge":{`...)
		b = appendMember(b, "kind", c.Kind)
		b = appendMember(b, "seed", c.Seed)
		b = strconv.AppendInt(append(b, `"difficulty":`...), int64(c.Difficulty), 10)
		b = append(b, `,"expires_at":"`...)
		b = appendTime(b, c.ExpiresAt)
		b = append(b, `"},`...)
	}
	b = strconv.AppendBool(append(b, `"retryable":`...), row.Retryable)
	b = append(b, `,"next_action":"`...)
	b = append(b, row.NextAction...)
	b = strconv.AppendInt(append(b, `","next_poll_after_ms":`...), r.pollAfter(a.PollAfter).Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), retry.Milliseconds(), 10)
	b = append(b, `,"server_time":"`...)
	b = appendTime(b, r.now())
	return append(b, `"}`...)
}

// appendStanding appends where somebody stands once the draw is over: a rank, and a
// wait or that it is unlikely to end.
func appendStanding(b []byte, s admission.Standing) []byte {
	if !s.Drawn {
		return b
	}
	b = strconv.AppendUint(append(b, `"rank":`...), s.Rank, 10)
	b = strconv.AppendInt(append(b, `,"place":`...), s.Place, 10)
	if s.Unlikely {
		return append(b, `,"unlikely":true,`...)
	}
	b = strconv.AppendInt(append(b, `,"wait_ms":{"low":`...), s.WaitLow.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"high":`...), s.WaitHigh.Milliseconds(), 10)
	return append(b, "},"...)
}

func appendErrors(b []byte, errs []admission.FieldError) []byte {
	if len(errs) == 0 {
		return b
	}
	b = append(b, `"errors":[`...)
	for i, e := range errs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"path":`...), e.Path)
		b = append(appendString(append(b, `,"message":`...), e.Message), '}')
	}
	return append(b, "],"...)
}

// appendMember appends `"name":"value",` or nothing when the value is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":`...)
	b = appendString(b, value)
	return append(b, ',')
}

// appendString appends a JSON string. Ids and messages need no escape and are copied
// whole; what came from outside may, and is then written rune by rune.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	if plain(s) {
		return append(append(b, s...), '"')
	}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < 0x20 || c == 0x7f || c == '\u2028' || c == '\u2029' || c == '<' || c == '>' || c == '&':
			b = append(b, '\\', 'u')
			const hex = "0123456789abcdef"
			b = append(b, hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return append(b, '"')
}

// plain reports printable ASCII that stands in a JSON string as it is.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, timeFormat)
}

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// writeQuota describes the user dimension (draft-ietf-httpapi-ratelimit-headers-10):
// the policy as quota per window, and what is left of it now. A call whose user was not
// charged says nothing, nor does a document that caches give to others.
func writeQuota(h http.Header, q admission.Quota) {
	if q.Limit <= 0 {
		return
	}
	h["Ratelimit-Policy"] = []string{`"user";q=` + strconv.FormatInt(q.Limit, 10) + `;w=` + strconv.FormatInt(max(1, ceilDiv(int64(q.Window), int64(time.Second))), 10)}
	value := `"user";r=` + strconv.FormatInt(max(0, q.Remaining), 10)
	if q.Reset > 0 {
		value += `;t=` + strconv.FormatInt(ceilDiv(int64(q.Reset), int64(time.Second)), 10)
	}
	h["Ratelimit"] = []string{value}
}

// ceilDiv is n/d rounded up, of n >= 0; it does not wrap.
func ceilDiv(n, d int64) int64 {
	if n%d > 0 {
		return n/d + 1
	}
	return n / d
}

func ceilMilli(d time.Duration) time.Duration {
	return time.Duration(ceilDiv(int64(d), int64(time.Millisecond))) * time.Millisecond
}
