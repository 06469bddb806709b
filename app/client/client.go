// Package client buys from Sluice the way a well-behaved app does: it keeps the request_id that came with
// the ticket on every retry, backs off with Full Jitter, honours Retry-After, polls after a 202, asks before
// it believes a "sold out" that follows an unknown result, and lets retries be at most a tenth of its requests.
//
// One Client serves any number of people and several instances. Its calls are safe for concurrent use and end
// when their context does. When an instance does not answer, its people go to the next one; when none does,
// calls back off until their attempts or their context end, and the error says whether the last request may
// have arrived.
package client

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Config is what a Client is made of. Only Bases is required.
type Config struct {
	Bases []string // of the instances, as "http://127.0.0.1:8080"
	HTTP  *http.Client

	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error // ends early, with the context's error
	Rand  func() float64                                   // uniform in [0,1), safe for concurrent use

	Backoff     Backoff
	Budget      *Budget       // of retries; default a tenth of the requests and a reserve of 10
	Timeout     time.Duration // of one exchange; default 5 s
	Attempts    int           // requests of one call before it gives up; default 12
	MaxInFlight int           // requests at once; the others wait their turn; default 64
	// Patience is about how long a person waits before they press again after a call has given up; Buy does
	// it for them. Default 10 s.
	Patience time.Duration

	// Documents is where waiting people read the queue document; default the instances. A program that
	// plays many people puts one shared copy here, as a CDN does.
	Documents Documents
	// Observe is told of every exchange after it ended, on the caller's goroutine; nil: nobody is.
	Observe func(Exchange)
}

// Documents serves the public queue document.
type Documents interface {
	Queue(ctx context.Context, activityID string) (*Queue, error)
}

func (c Config) withDefaults() Config {
	if c.HTTP == nil {
		c.HTTP = &http.Client{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Backoff == (Backoff{}) {
		c.Backoff = Backoff{Base: 200 * time.Millisecond, Cap: 10 * time.Second}
	}
	if c.Budget == nil {
		c.Budget = NewBudget(0.1, 10)
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Attempts == 0 {
		c.Attempts = 12
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 64
	}
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	return c
}

// Client is a Sluice client.
type Client struct {
	config   Config
	bases    []*base
	inFlight chan struct{} // a place for each request under way
}

// base is one instance.
type base struct {
	url       string
	downUntil atomic.Int64 // Unix ns; until then others are preferred
}

// downFor is how long an instance that broke a connection is avoided: long enough that a crowd does not
// hammer a dead port, short enough that a restarted one gets its people back.
const downFor = time.Second

// New makes a client. An error names what is wrong with a base.
func New(c Config) (*Client, error) {
	c = c.withDefaults()
	if len(c.Bases) == 0 {
		return nil, errors.New("client: no instance given")
	}
	out := &Client{config: c, inFlight: make(chan struct{}, c.MaxInFlight)}
	for _, url := range c.Bases {
		if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
			return nil, fmt.Errorf("client: %q does not begin with http:// or https://", url)
		}
		out.bases = append(out.bases, &base{url: strings.TrimRight(url, "/")})
	}
	return out, nil
}

// base picks the person's own instance, the next ones while it is down.
func (c *Client) base(userID string) *base {
	if len(c.bases) == 1 {
		return c.bases[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(userID))
	home, now := int(h.Sum32())%len(c.bases), c.config.Now().UnixNano()
	for i := range c.bases {
		if b := c.bases[(home+i)%len(c.bases)]; b.downUntil.Load() <= now {
			return b
		}
	}
	return c.bases[home]
}

func (c *Client) documents() Documents {
	if c.config.Documents != nil {
		return c.config.Documents
	}
	return c
}

// between is uniform in low..high.
func msec(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (c *Client) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.config.Rand()*float64(max(0, high-low)))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
