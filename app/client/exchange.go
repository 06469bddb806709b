package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Call names what was asked.
type Call string

// The calls.
const (
	CallSession  Call = "session"
	CallActivity Call = "activity"
	CallQueue    Call = "queue"
	CallJoin     Call = "join"
	CallTicket   Call = "ticket"
	CallSubmit   Call = "submit"
	CallRequest  Call = "request"
	CallOrder    Call = "order"
	CallCancel   Call = "cancel"
)

// Exchange is one request and what came of it.
type Exchange struct {
	Call      Call
	Base      string // of the instance
	UserID    string // "" for public documents
	RequestID string // of submit and request
	Retry     bool
	Intended  time.Time // when the person wanted it; before Sent when too many were under way
	Sent      time.Time
	Ended     time.Time

	HTTP   int // 0 when nothing came back
	Header http.Header
	Body   []byte // at most maxBody
	Err    error  // *Fault, or nil
}

// Fault is a request without an answer.
type Fault struct {
	Call    Call
	Arrived bool // it may have: the result is unknown. false: certainly not
	Err     error
}

// Error says whether the request may have arrived.
func (f *Fault) Error() string {
	if f.Arrived {
		return fmt.Sprintf("%s: no answer, and the request may have arrived: %v", f.Call, f.Err)
	}
	return fmt.Sprintf("%s: not sent: %v", f.Call, f.Err)
}

// Unwrap returns the network's error.
func (f *Fault) Unwrap() error { return f.Err }

// maxBody bounds an answer; the queue document of 16 lanes is below 4 KiB.
const maxBody = 64 << 10

// request is one exchange to make.
type request struct {
	call      Call
	method    string
	path      string
	body      []byte
	header    [][2]string
	requestID string
	retry     bool
	intended  time.Time // zero: now
}

// do makes one exchange. It never retries.
func (c *Client) do(ctx context.Context, p Person, r request) Exchange {
	x := Exchange{Call: r.call, UserID: p.UserID, RequestID: r.requestID, Retry: r.retry, Intended: r.intended}
	if x.Intended.IsZero() {
		x.Intended = c.config.Now()
	}
	if !r.retry {
		c.config.Budget.First()
	}
	select {
	case c.inFlight <- struct{}{}:
		defer func() { <-c.inFlight }()
	case <-ctx.Done():
		x.Err = &Fault{Call: r.call, Err: ctx.Err()}
		return x // nobody is told: there was no exchange
	}
	// In a goroutine of its own: net/http needs a deep stack, and those who wait in line by the ten thousand
	// would each keep theirs.
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.exchange(ctx, p, r, &x)
	}()
	<-done
	return x
}

func (c *Client) exchange(ctx context.Context, p Person, r request, x *Exchange) {
	b := c.base(p.UserID)
	x.Base, x.Sent = b.url, c.config.Now()
	x.HTTP, x.Header, x.Body, x.Err = c.send(ctx, b.url, p, r)
	x.Ended = c.config.Now()
	if x.Err != nil {
		if ctx.Err() == nil && !errors.Is(x.Err, context.DeadlineExceeded) {
			b.downUntil.Store(x.Ended.Add(downFor).UnixNano())
		}
		x.Err = &Fault{Call: r.call, Arrived: arrived(x.Err), Err: x.Err}
	}
	if c.config.Observe != nil {
		c.config.Observe(*x)
	}
}

func (c *Client) send(ctx context.Context, base string, p Person, r request) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	var body io.Reader
	if r.method == http.MethodPost {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base+r.path, body)
	if err != nil {
		return 0, nil, nil, notSent{err}
	}
	req.GetBody = nil // the transport must not send a purchase again on its own
	p.headers(req.Header)
	if len(r.body) > 0 {
		req.Header["Content-Type"] = []string{"application/json"}
	}
	for _, h := range r.header {
		req.Header[h[0]] = []string{h[1]}
	}
	res, err := c.config.HTTP.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return 0, nil, nil, err
	}
	return res.StatusCode, res.Header, answer, nil
}

// notSent is a request that could not be built.
type notSent struct{ error }

// arrived reports whether a request that got no answer may have reached the instance. Only a failed dial is
// proof that it did not.
func arrived(err error) bool {
	var never notSent
	if errors.As(err, &never) {
		return false
	}
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// ErrGivenUp is a call that was refused or failed as often as Config.Attempts and the retry budget allow.
var ErrGivenUp = errors.New("given up")

// again waits before try n+1 and takes it from the retry budget; when that is spent the call ends, and it is
// for a person to press again. wait is what the answer asked for, on top of the jitter.
func (c *Client) again(ctx context.Context, n int, wait time.Duration, last error) error {
	switch {
	case n+1 >= c.config.Attempts || wait > longestRetryAfter:
		return fmt.Errorf("%w after %d tries: %w", ErrGivenUp, n+1, last)
	case !c.config.Budget.Retry():
		return fmt.Errorf("%w, no retry budget left: %w", ErrGivenUp, last)
	}
	return c.config.Sleep(ctx, wait+c.config.Backoff.Wait(n, c.config.Rand()))
}

// call makes exchanges until one is neither a fault nor an answer that asks for the same again. It is for
// calls that may be repeated freely; a submit has its own rules.
func (c *Client) call(ctx context.Context, p Person, r request) (Exchange, error) {
	for n := 0; ; n++ {
		x := c.do(ctx, p, r)
		r.retry, r.intended = true, time.Time{}
		last, wait := x.Err, time.Duration(0)
		if x.Err == nil {
			if x.HTTP < 400 {
				return x, nil
			}
			a, err := decodeAnswer(x)
			switch {
			case err != nil && x.HTTP < 500:
				return x, err
			case err != nil: // a proxy's words for "later"
				last, wait = err, max(defaultRetryAfter, retryAfterHeader(x.Header))
			case a.NextAction == actionRetry || a.NextAction == actionQueryThenRetry:
				last, wait = &Refused{r.call, a}, max(a.RetryAfter(), 0)
			default:
				return x, &Refused{r.call, a}
			}
		}
		if ctx.Err() != nil {
			return x, last
		}
		if err := c.again(ctx, n, wait, last); err != nil {
			return x, err
		}
	}
}
