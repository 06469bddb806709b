// Package combined limits a request in three dimensions at once: where it comes from, who
// sends it, and what it asks for.
//
// Use it in a service that has no pipeline of stages of its own. It promises that a
// refusal charges nobody: whatever a dimension took is given back when another refuses.
// It keeps all buckets in one bounded [limit.Keyed] table, whose bounds hold here too; a
// charge made to the table's overflow is not given back. The service itself has a stage
// for each dimension instead, so that each can answer as early as it can.
package combined

import (
	"fmt"
	"math"

	"github.com/sluice-io/sluice/app/limit"
)

// Mode says how the dimensions combine.
type Mode uint8

const (
	// All admits what every dimension admits.
	All Mode = iota
	// Any admits what at least one dimension admits, and charges the first that does.
	Any
	// Nested is All with keys inside keys: a user is counted per source, an endpoint per
	// user and source. One user's many devices do not share a bucket; one account used by
	// a whole subnet does.
	Nested
)

// Dimension names one of the three.
type Dimension uint8

const (
	Nothing Dimension = iota // no dimension refused
	Source
	User
	Endpoint
)

func (d Dimension) String() string {
	return [...]string{"nothing", "source", "user", "endpoint"}[d]
}

// Config is a policy. Endpoints is a closed set: a request for another one is refused.
type Config struct {
	Mode      Mode
	Source    limit.Rate
	User      limit.Rate
	Endpoints map[string]limit.Rate
	Table     limit.KeyedConfig
}

// Defaults returns the policy of the handbook: a source 100/s over 10 s, a user 2/s with a
// bucket of 5, an endpoint a bucket of 3, where paying is stricter than asking.
func Defaults(mode Mode) Config {
	return Config{
		Mode:   mode,
		Source: rate(100, 1000),
		User:   rate(2, 5),
		Endpoints: map[string]limit.Rate{
			"/info": rate(3, 3),
			"/pay":  rate(1, 1),
		},
	}
}

func rate(perSecond float64, burst int64) limit.Rate {
	r, _ := limit.NewRate(perSecond, burst) // constants of Defaults, all valid
	return r
}

// Request is one request, its names hashed by one [limit.Hasher]. A zero hash is nobody,
// and is refused.
type Request struct {
	Source   uint64
	User     uint64
	Endpoint string
}

// Verdict is a decision and, if it is a refusal, the dimension behind it: under All and
// Nested the one with the longest wait, under Any the one with the shortest.
type Verdict struct {
	limit.Decision
	By Dimension
}

// Limiter limits in three dimensions.
type Limiter struct {
	mode         Mode
	source, user limit.Rate
	endpoints    map[string]endpoint
	table        *limit.Keyed
}

type endpoint struct {
	id   uint64
	rate limit.Rate
}

// New returns a limiter with full buckets.
func New(c Config) (*Limiter, error) {
	if c.Mode > Nested {
		return nil, &limit.FieldError{Field: "mode", Problem: fmt.Sprintf("%d is none of All, Any, Nested", c.Mode)}
	}
	table, err := limit.NewKeyed(c.Table)
	if err != nil {
		return nil, err
	}
	l := &Limiter{mode: c.Mode, source: c.Source, user: c.User, table: table, endpoints: map[string]endpoint{}}
	h := limit.NewHasher()
	for name, r := range c.Endpoints {
		if name == "" {
			return nil, &limit.FieldError{Field: "endpoints", Problem: "an endpoint without a name"}
		}
		l.endpoints[name] = endpoint{id: h.String(name), rate: r}
	}
	return l, nil
}

// Table returns the table behind the limiter, whose janitor the caller runs.
func (l *Limiter) Table() *limit.Keyed { return l.table }

// charge is what one dimension wants.
type charge struct {
	by   Dimension
	key  limit.Key
	rate limit.Rate
}

// Allow charges n units in the dimensions of the mode, or in none.
func (l *Limiter) Allow(now limit.Instant, r Request, n int64) Verdict {
	if l.mode == Any {
		return l.allowAny(now, l.charges(r), n)
	}
	return l.allowAll(now, l.charges(r), n)
}

func (l *Limiter) allowAny(now limit.Instant, charges [3]charge, n int64) Verdict {
	soonest := Verdict{Decision: limit.Decision{RetryAfter: limit.Never}, By: Source}
	for _, c := range charges {
		d := l.table.Allow(now, c.key, n, c.rate)
		if d.OK {
			return Verdict{Decision: d}
		}
		if d.RetryAfter < soonest.RetryAfter {
			soonest = Verdict{d, c.by}
		}
	}
	return soonest
}

// allowAll asks every dimension even after a refusal: RetryAfter must be long enough for
// all of them. Then it gives back what the others took.
func (l *Limiter) allowAll(now limit.Instant, charges [3]charge, n int64) Verdict {
	verdict := Verdict{Decision: limit.Decision{OK: true, Remaining: math.MaxInt64}}
	var took [3]bool
	for i, c := range charges {
		d := l.table.Allow(now, c.key, n, c.rate)
		took[i] = d.OK
		verdict.Remaining = min(verdict.Remaining, d.Remaining)
		if !d.OK && d.RetryAfter > verdict.RetryAfter {
			verdict.OK, verdict.RetryAfter, verdict.By = false, d.RetryAfter, c.by
		}
	}
	if verdict.OK {
		return verdict
	}
	for i, c := range charges {
		if took[i] {
			l.table.Refund(now, now, c.key, n, c.rate)
		}
	}
	return verdict
}

// What sets the keys of users and of endpoints apart from those of sources.
const (
	byUser     = 1
	byEndpoint = 2
)

// charges names the three buckets of a request. An unknown endpoint has no key, which the
// table refuses: fails closed.
func (l *Limiter) charges(r Request) [3]charge {
	e := l.endpoints[r.Endpoint]
	source, user, path := r.Source, limit.Nest(byUser, r.User), limit.Nest(byEndpoint, e.id)
	if l.mode == Nested {
		user = limit.Nest(source, r.User)
		path = limit.Nest(user, e.id)
	}
	key := func(id uint64) limit.Key { return limit.Key{ID: id, Prefix: r.Source} }
	return [3]charge{
		{Source, key(source), l.source},
		{User, key(user), l.user},
		{Endpoint, key(path), e.rate},
	}
}
