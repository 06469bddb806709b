package httpapi

import (
	"strconv"

	"github.com/sluice-io/sluice/app/admission"
)

// submitBody is the body of a submit: exactly these four members, each once. The ids are
// parts of the body's own bytes: they are compared and then forgotten.
type submitBody struct {
	RequestID  []byte
	ActivityID []byte
	SKUID      []byte
	Quantity   int64
}

// fieldError names what is wrong with a body and where.
type fieldError struct {
	Field string // "" for the document itself
	Want  string
}

func (e *fieldError) Error() string {
	if e.Field == "" {
		return "body: " + e.Want
	}
	return e.Field + ": " + e.Want
}

// The members of a submit, as bits of the set that was seen.
const (
	seenRequestID = 1 << iota
	seenActivityID
	seenSKUID
	seenQuantity
	seenAll = seenRequestID | seenActivityID | seenSKUID | seenQuantity
)

// parseSubmit reads a submit strictly: unknown, repeated or case-folded members,
// escapes (no id needs one, so an escaped spelling is a second spelling), a byte
// order mark, trailing content, null, wrong types and non-canonical numbers are
// refused. It is written by hand because encoding/json folds the case of names,
// accepts repeats, and costs many times as much (bench/rows/wire.go) on the hottest path.
func parseSubmit(body []byte) (submitBody, *fieldError) {
	var (
		out  submitBody
		seen int
		p    = scanner{b: body}
	)
	if !p.punct('{') {
		return out, &fieldError{"", "must be one JSON object"}
	}
	for first := true; ; first = false {
		if p.punct('}') {
			break
		}
		if !first && !p.punct(',') {
			return out, &fieldError{"", "is not valid JSON"}
		}
		name, ok := p.str()
		if !ok || !p.punct(':') {
			return out, &fieldError{"", "is not valid JSON"}
		}
		var bit int
		var field *[]byte
		switch string(name) {
		case "request_id":
			bit, field = seenRequestID, &out.RequestID
		case "activity_id":
			bit, field = seenActivityID, &out.ActivityID
		case "sku_id":
			bit, field = seenSKUID, &out.SKUID
		case "quantity":
			bit = seenQuantity
		default:
			return out, &fieldError{"", "has a member other than request_id, activity_id, sku_id, quantity"}
		}
		if seen&bit != 0 {
			return out, &fieldError{string(name), "is given twice"}
		}
		seen |= bit
		if field == nil {
			if out.Quantity, ok = p.integer(); !ok {
				return out, &fieldError{"quantity", "must be a whole number of 1 or more"}
			}
			continue
		}
		value, ok := p.str()
		if !ok {
			return out, &fieldError{string(name), "must be a plain string"}
		}
		*field = value
	}
	if !p.end() {
		return out, &fieldError{"", "has content after the object"}
	}
	if seen != seenAll {
		return out, &fieldError{missing(seen), "is missing"}
	}
	return out, nil
}

// CheckSubmit says what is wrong with the form of a submit's body; nil: nothing. It is
// the parser alone, for whoever measures it or looks at bodies elsewhere.
func CheckSubmit(body []byte) error {
	if _, bad := parseSubmit(body); bad != nil {
		return bad
	}
	return nil
}

// check compares the body with what path and headers said: there is one truth about
// what is bought, and the chain has decided on it already.
func (b submitBody) check(req *admission.Request) *fieldError {
	switch {
	case string(b.RequestID) != req.RequestID:
		return &fieldError{"request_id", "must equal the Idempotency-Key header"}
	case string(b.ActivityID) != req.Activity.ID:
		return &fieldError{"activity_id", "must be the activity of the path"}
	case string(b.SKUID) != req.SKU.ID:
		return &fieldError{"sku_id", "must be the SKU of the path"}
	case b.Quantity > req.SKU.LimitPerUser:
		return &fieldError{"quantity", "must be at most " + strconv.FormatInt(req.SKU.LimitPerUser, 10)}
	}
	return nil
}

func missing(seen int) string {
	switch {
	case seen&seenRequestID == 0:
		return "request_id"
	case seen&seenActivityID == 0:
		return "activity_id"
	case seen&seenSKUID == 0:
		return "sku_id"
	default:
		return "quantity"
	}
}

// scanner walks over JSON of the small grammar that a submit needs.
type scanner struct {
	b []byte
	i int
}

func (p *scanner) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *scanner) punct(c byte) bool {
	p.space()
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// str reads a string of printable ASCII without escapes: all that an id can be.
func (p *scanner) str() ([]byte, bool) {
	if !p.punct('"') {
		return nil, false
	}
	for start := p.i; p.i < len(p.b); p.i++ {
		switch c := p.b[p.i]; {
		case c == '"':
			p.i++
			return p.b[start : p.i-1], true
		case c == '\\' || c < 0x20 || c >= 0x7f:
			return nil, false
		}
	}
	return nil, false
}

// integer reads a canonical decimal of 1..999,999,999: no sign, fraction, exponent or leading zero.
func (p *scanner) integer() (int64, bool) {
	p.space()
	const maxDigits = 9 // far above any limit_per_user, far below overflow
	var n int64
	start := p.i
	for ; p.i < len(p.b) && '0' <= p.b[p.i] && p.b[p.i] <= '9'; p.i++ {
		if p.i-start == maxDigits {
			return 0, false
		}
		n = n*10 + int64(p.b[p.i]-'0')
	}
	if p.i == start || p.b[start] == '0' {
		return 0, false
	}
	if p.i < len(p.b) && (p.b[p.i] == '.' || p.b[p.i]|0x20 == 'e') {
		return 0, false // 1.0 and 1e3 are second spellings
	}
	return n, true
}

func (p *scanner) end() bool {
	p.space()
	return p.i == len(p.b)
}
