package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-io/sluice/app/admission"
)

// Config is what a Client is made of.
type Config struct {
	Store      admission.Leases   // required
	Limiters   admission.Limiters // of the central strategy; without them it refuses everybody
	InstanceID string             // required
	Boot       string             // random per start, where InstanceID is not: asks are numbered from 1 at each
	Policies   Policies           // replaced by Apply
	Clock      Clock              // default NewClock()
	Jitter     func() float64     // uniform in [-1, 1], safe for concurrent use; default random
	// Share is this instance's part of all live instances' weights, 0..1: how much of R
	// the share strategy takes. Default 1.
	Share func() float64

	SyncBudget time.Duration         // longest wait of a request in hand for tokens; default 3 ms, embedded ten times as much
	AskTimeout time.Duration         // after which an ask is given up and its grant is lost; default 10 x SyncBudget
	Registerer prometheus.Registerer // nil counts nothing
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = NewClock()
	}
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 2*rand.Float64() - 1 } //nolint:gosec // spreads asks, no secret
	}
	if c.Share == nil {
		c.Share = func() float64 { return 1 }
	}
	if c.SyncBudget == 0 {
		c.SyncBudget = 3 * time.Millisecond
	}
	if c.AskTimeout == 0 {
		c.AskTimeout = 10 * c.SyncBudget
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("lease: a store is required")
	case c.InstanceID == "" || len(c.InstanceID) > 128:
		return errors.New("lease: the instance id has 1 to 128 bytes")
	}
	return nil
}

const (
	// maxPairs bounds the SKUs that one instance spends for: all that may be live at once.
	maxPairs = admission.MaxActivities * admission.MaxSKUs
	// maxQueued bounds the asks that wait for Run to send them; one more is a failed ask.
	maxQueued = 1024
	// forgetAfter is how long a SKU that nobody asks for is remembered, in rounds of Run.
	forgetAfter = 600
	// round is how often Run rereads budgets and drops dead tokens.
	round = time.Second
)

// Client is the instance's side of the budgets. Spend and Return are safe for concurrent
// use and take no lock while tokens are in hand; Run sends the asks.
type Client struct {
	c       Config
	born    Instant
	asker   string // what asks carry
	metrics *metrics
	seq     atomic.Uint64 // of asks, for every bucket: it never begins again within a boot
	jobs    chan []asked
	reread  chan struct{} // a budget is missing: do not wait for the round

	policies atomic.Pointer[Policies]
	pairs    atomic.Pointer[map[admission.SKURef]*pair] // replaced, never changed
	reading  atomic.Bool                                // budgets are being reread

	mu         sync.Mutex
	activities map[string]*slice // guarded by mu; at most one per activity of pairs
}

// slice is what this instance has of one budget, whatever the strategy.
type slice struct {
	bucket
	meter  meter
	budget atomic.Pointer[admission.Budget] // as last read; share and central only
}

// pair is the two budgets that one request needs.
type pair struct {
	sku, activity *slice
	policy        atomic.Pointer[pairPolicy]
	used          atomic.Bool  // since the last round
	idle          atomic.Int64 // rounds without use
}

type pairPolicy struct{ sku, activity Policy }

// asked is one bucket's part of an ask on its way.
type asked struct {
	bucket *bucket
	asking *asking
	ask    admission.LeaseAsk
}

// NewClient returns a client that has nothing yet. Run must run for it to get anything.
func NewClient(c Config) (*Client, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	l := &Client{
		c: c, born: c.Clock(), asker: c.InstanceID + "@" + c.Boot, metrics: newMetrics(c.Registerer, c.InstanceID),
		jobs: make(chan []asked, maxQueued), reread: make(chan struct{}, 1),
		activities: make(map[string]*slice),
	}
	l.policies.Store(&c.Policies)
	l.pairs.Store(&map[admission.SKURef]*pair{})
	return l, nil
}

// Spend takes one admission from the SKU's budget and from its activity's. The zero
// Decision admits, and the token may be returned later; else the decision is Overloaded
// with the true wait, or DependencyUnavailable. A request waits at most SyncBudget, and
// only for an ask that can still serve it.
func (c *Client) Spend(ctx context.Context, ref admission.SKURef) (Token, admission.Decision) {
	p := c.pair(ref)
	if p == nil {
		return Token{}, admission.Decision{Outcome: admission.Overloaded, Stage: admission.StageLease, Reason: admission.ReasonLeaseEmpty, RetryAfter: round}
	}
	if !p.used.Load() {
		p.used.Store(true)
	}
	switch p.policy.Load().sku.Strategy {
	case Share:
		return c.spendShare(p)
	case Central:
		return c.spendCentral(ctx, p)
	default:
		return c.spendLease(ctx, p)
	}
}

// Return gives a token back to the lease it came from, if that still lives. It must not
// be called after an unknown result: the request may have been served.
func (c *Client) Return(t Token) { t.giveBack(c.c.Clock()) }

// Apply puts policies into force. Tokens in hand keep the life they were granted.
func (c *Client) Apply(p Policies) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policies.Store(&p)
	for ref, pair := range *c.pairs.Load() {
		pair.policy.Store(policyOf(&p, ref))
	}
}

func policyOf(p *Policies, ref admission.SKURef) *pairPolicy {
	return &pairPolicy{sku: p.For(ref), activity: p.For(admission.SKURef{ActivityID: ref.ActivityID})}
}

// pair finds or makes the two budgets of a SKU; nil when there are too many.
func (c *Client) pair(ref admission.SKURef) *pair {
	if p := (*c.pairs.Load())[ref]; p != nil {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.pairs.Load()
	if p := old[ref]; p != nil {
		return p
	}
	if len(old) >= maxPairs {
		return nil
	}
	now := c.c.Clock()
	activity := c.activities[ref.ActivityID]
	if activity == nil {
		activity = newSlice(admission.SKURef{ActivityID: ref.ActivityID}, now)
		c.activities[ref.ActivityID] = activity
	}
	p := &pair{sku: newSlice(ref, now), activity: activity}
	p.policy.Store(policyOf(c.policies.Load(), ref))
	pairs := make(map[admission.SKURef]*pair, len(old)+1)
	for r, q := range old {
		pairs[r] = q
	}
	pairs[ref] = p
	c.pairs.Store(&pairs)
	return p
}

func newSlice(ref admission.SKURef, now Instant) *slice {
	s := new(slice)
	s.init(ref, now)
	return s
}
