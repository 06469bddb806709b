package admission

import "time"

// Request is one submit on its way through the funnel: a plain value that httpapi
// fills from path and headers and the stages complete. One goroutine owns it.
type Request struct {
	Now  time.Time // wall clock at arrival, read once
	Mono int64     // the limiters' monotonic clock at arrival, ns

	// From path and headers. Lengths are bounded before they get here.
	Activity    *Activity // of the path_id; never nil
	SKU         *SKU      // of the path; never nil
	RequestID   string    // Idempotency-Key
	DeviceHash  string    // "sha256:" + hex
	Bearer      string    // session, unverified
	GatewayUser string    // identity from a gateway inside a trusted CIDR; else ""
	Ticket      string    // unverified

	// The client address as seeded hashes; the address itself is not kept.
	SourceKey        uint64 // /32 or /64
	SourcePrefixKey  uint64 // /24 or /48
	SourceUnparsable bool   // shares one strict bucket

	// Verified by stages.
	UserID         string
	Nonce          string
	TicketKeyID    string
	TicketIssuedAt time.Time // not_before of the ticket: its second of issue
	TicketExpires  time.Time

	// From the body; equal to path and header once parsed.
	Quantity int64
	BodyHash string

	// What the stages found.
	Holder Holder        // of this user's reservation, when nothing new is to be had: after a sold-out mark or the closing
	Record RequestRecord // what the request came to: of Queued, Replayed, AlreadyPurchased, ReplayRejected
	Quota  Quota         // of the user dimension, for the RateLimit headers

	// What the pipeline found in its first chain and needs in its second; nil before the
	// first. Only package slots looks into it.
	Visit any

	// What OnEnd registered. A submit registers six things; more do not fit the array.
	releases [8]Settler
	more     []Settler
	held     int // of releases
}

// Settler gives back or counts what a request took, once its decision is known.
type Settler interface{ Settle(Decision) }

type settle func(Decision)

func (f settle) Settle(d Decision) { f(d) }

// Holder is what an instance remembers of a reservation from the log it follows.
type Holder struct {
	RequestID     string
	BodyHash      string
	ReservationID string
	OrderID       string  // "" before the order exists
	Outcome       Outcome // a Poll… outcome; Pass when there is no holder
	Attempt       int64
}

// Quota is how much of a limit is left. The zero value says nothing.
type Quota struct {
	Limit     int64         // requests per Window when the bucket is full: its burst
	Window    time.Duration // in which an empty bucket fills
	Remaining int64
	Reset     time.Duration // until it is full again
}

// Ref names the SKU that the request wants.
func (r *Request) Ref() SKURef { return SKURef{ActivityID: r.Activity.ID, SKUID: r.SKU.ID} }

// OnEnd registers what must happen when the request is decided, whatever the
// outcome: refunds, seats, counters. Functions run once, last registered first.
func (r *Request) OnEnd(f func(Decision)) { r.AtEnd(settle(f)) }

// AtEnd is [Request.OnEnd] for the hot path: a pointer that settles itself needs no closure.
func (r *Request) AtEnd(s Settler) {
	if r.held == len(r.releases) {
		r.more = append(r.more, s)
		return
	}
	r.releases[r.held] = s
	r.held++
}

// End runs what OnEnd registered. Calling it again does nothing.
func (r *Request) End(d Decision) {
	for i := len(r.more) - 1; i >= 0; i-- {
		s := r.more[i]
		r.more = r.more[:i]
		s.Settle(d)
	}
	for r.held > 0 {
		r.held--
		s := r.releases[r.held]
		r.releases[r.held] = nil
		s.Settle(d)
	}
}
