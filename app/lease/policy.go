package lease

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Strategy is how an instance comes by its tokens.
type Strategy string

// The strategies.
const (
	Leased  Strategy = "lease"   // slices of the budget, granted by the limiter store: the default
	Share   Strategy = "share"   // this instance's weight share of R; no coordination at all
	Central Strategy = "central" // one token-bucket script per request; the reference
)

// Policy is how one bucket is spent. The zero value of a field is its default.
type Policy struct {
	Strategy Strategy      // default Leased
	LeaseFor time.Duration // a token's life, 10 ms..10 s; default 200 ms
	Ramp     time.Duration // in which a started instance rises from 10 % to 100 %, at most 1 h; default 10 s, negative: none
	Weight   float64       // of this instance among the others, 0.001..1000; default 1
}

// WithDefaults fills in what is not set.
func (p Policy) WithDefaults() Policy {
	if p.Strategy == "" {
		p.Strategy = Leased
	}
	if p.LeaseFor == 0 {
		p.LeaseFor = 200 * time.Millisecond
	}
	if p.Ramp == 0 {
		p.Ramp = 10 * time.Second
	}
	if p.Weight == 0 {
		p.Weight = 1
	}
	return p
}

// Validate names the first field that is out of range.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	switch {
	case p.Strategy != Leased && p.Strategy != Share && p.Strategy != Central:
		return fmt.Errorf("lease.strategy: %q: want lease, share or central", p.Strategy)
	case p.LeaseFor < 10*time.Millisecond || p.LeaseFor > 10*time.Second:
		return fmt.Errorf("lease.lease_ms: %v: want 10 ms to 10 s", p.LeaseFor)
	case p.Ramp > time.Hour:
		return fmt.Errorf("lease.ramp_ms: %v: want at most an hour", p.Ramp)
	case math.IsNaN(p.Weight) || p.Weight < 0.001 || p.Weight > 1000:
		return fmt.Errorf("lease.weight: %v: want 0.001 to 1000", p.Weight)
	}
	return nil
}

// ramp is how far an instance has risen after uptime: 0.1..1.
func (p Policy) ramp(uptime time.Duration) float64 {
	if p.Ramp <= 0 || uptime >= p.Ramp {
		return 1
	}
	return 0.1 + 0.9*float64(max(uptime, 0))/float64(p.Ramp)
}

// Policies are the policies in force: one value, replaced whole.
type Policies struct {
	Default Policy
	Of      map[admission.SKURef]Policy // a SKU's, or an activity's under SKUID ""
	// SyncBudget is the longest wait of a request in hand for tokens; 0: the Config's.
	SyncBudget time.Duration
}

// For returns the policy of a bucket: its own, its activity's, the default.
func (p *Policies) For(ref admission.SKURef) Policy {
	if own, ok := p.Of[ref]; ok {
		return own.WithDefaults()
	}
	if own, ok := p.Of[admission.SKURef{ActivityID: ref.ActivityID}]; ok {
		return own.WithDefaults()
	}
	return p.Default.WithDefaults()
}
