package nacos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// Source is a rules.Source and rules.Governed on one key of a Nacos server.
type Source struct {
	cfg     Config
	servers []server
	api     *api
	outage  *outage
	sdk     sync.WaitGroup // clients of the SDK, the one that Run left behind included
}

var (
	_ rules.Source   = (*Source)(nil)
	_ rules.Governed = (*Source)(nil)
)

// New validates the configuration, files included, and contacts nobody.
func New(cfg Config) (*Source, error) {
	cfg = cfg.withDefaults()
	servers, err := parseServers(cfg.Servers)
	if err != nil {
		return nil, err
	}
	t, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, servers: servers, api: newAPI(cfg, servers, t), outage: &outage{cfg: cfg}}, nil
}

// Name says which key of which server.
func (s *Source) Name() string { return "nacos " + s.servers[0].http() + " " + s.api.where() }

// Close gives the idle connections back, as Run does by itself, and waits for what Run may
// have left behind: after a Run on a server that hangs that takes up to 9 s.
func (s *Source) Close() {
	s.api.close()
	s.sdk.Wait()
}

// Check looks, within seconds, for what the SDK's constructor never reports: the HTTP port,
// the gRPC port 1000 above it, the login, and a read of the key. One good server is enough.
// admission.ErrUnavailable: nobody answers; ErrDenied: the user; else the words say it. An
// absent key is no error.
func (s *Source) Check(ctx context.Context) error {
	if _, err := s.api.read(ctx); err != nil && !errors.Is(err, admission.ErrNotFound) {
		return err
	}
	var errs []error
	for _, srv := range s.servers {
		d := net.Dialer{Timeout: s.cfg.Timeout}
		c, err := d.DialContext(ctx, "tcp", srv.grpc())
		if err == nil {
			return c.Close()
		}
		errs = append(errs, fmt.Errorf("nacos answers on %s, but not on %s, where it pushes changes (gRPC, the port + %d): %w", srv.http(), srv.grpc(), grpcOffset, err))
	}
	return errors.Join(errs...)
}

// How often the key is read while the push is not proven to work: until the SDK's listener
// is registered, about 5 s after the start, and after a change that came without a push.
const (
	eagerEvery = 400 * time.Millisecond
	eagerFor   = 8 * time.Second
	// A change that the poll saw and no push told of within this makes the SDK's client anew.
	lostAfter = 5 * time.Second
	again     = 150 * time.Millisecond // until a read that did not yet show a pushed change is repeated
	againMost = 10
)

// Run reads, emits, listens and polls until ctx ends; it returns nil. What it cannot reach
// it reports as updates with Err: whether that ends a start is for [Source.Check] to say.
//
// At the end it waits leaveWithin for the SDK and no longer: a client that is being made on
// a server that hangs ends after Run, by itself, and touches nothing of ours.
func (s *Source) Run(ctx context.Context, emit func(rules.Update)) error {
	defer s.api.close()
	pushed := make(chan struct{}, 1)
	push := newPush(s, pushed)
	defer push.stop()
	push.start(ctx)

	var last []byte // emitted; nil: none or absent
	seen := false
	look := func() bool {
		u := s.look(ctx)
		if ctx.Err() != nil {
			return false
		}
		if u.Err != nil {
			s.outage.away(u.At, u.Err)
		} else {
			s.outage.back(u.At)
		}
		changed := u.Err == nil && (!seen || !bytes.Equal(last, u.Raw))
		if u.Err == nil {
			last, seen = u.Raw, true
		}
		emit(u)
		return changed
	}
	eagerUntil := s.cfg.Now().Add(eagerFor)
	look()
	reads, repeat := 0, time.NewTimer(time.Hour)
	defer repeat.Stop()
	poll := time.NewTimer(eagerEvery)
	defer poll.Stop()
	for {
		select {
		case <-pushed:
			push.worked()
			if reads = 0; !look() {
				repeat.Reset(again)
			}
		case <-repeat.C:
			if reads++; !look() && reads < againMost {
				repeat.Reset(again)
			}
		case <-poll.C:
			now := s.cfg.Now()
			if look() {
				push.missed(now)
				eagerUntil = now.Add(eagerFor)
			}
			push.renewIfLost(ctx, now, s.api.currentToken())
			if now.Before(eagerUntil) {
				poll.Reset(eagerEvery)
			} else {
				poll.Reset(s.cfg.PollEvery)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads the key once, twice when it seems gone.
func (s *Source) look(ctx context.Context) rules.Update {
	raw, err := s.api.read(ctx)
	if errors.Is(err, admission.ErrNotFound) {
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
		raw, err = s.api.read(ctx)
	}
	u := rules.Update{Raw: raw, At: s.cfg.Now()}
	if errors.Is(err, admission.ErrNotFound) {
		u.Absent, err = true, nil
	}
	u.Err = err
	return u
}

// leaveWithin is how long the end of Run waits for the SDK: a drain must not be held by it.
const leaveWithin = time.Second

// push keeps one SDK client, and makes it anew when it is deaf. Run's goroutine owns it.
type push struct {
	src    *Source
	pushed chan struct{}
	cancel context.CancelFunc
	gone   chan struct{} // closed when the newest client has ended
	missAt time.Time     // of a change that no push told of yet
	token  string        // with which our reads worked when the client was made
}

func newPush(s *Source, pushed chan struct{}) *push { return &push{src: s, pushed: pushed} }

func (p *push) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.missAt, p.token = time.Time{}, p.src.api.currentToken()
	before, gone := p.gone, make(chan struct{})
	p.gone = gone
	p.src.sdk.Go(func() {
		defer close(gone)
		if before != nil {
			<-before // the SDK forgets a client without a lock: one at a time
		}
		if ctx.Err() != nil {
			return
		}
		err := listen(ctx, p.src.cfg, p.src.servers, p.src.outage, func() {
			select {
			case p.pushed <- struct{}{}:
			default: // one signal is as good as ten
			}
		})
		if err != nil {
			p.src.cfg.Log.Error("nacos pushes are off; polling", "event", "nacos_listen", "error", err)
		}
	})
}

func (p *push) stop() {
	p.cancel()
	late := time.NewTimer(leaveWithin)
	defer late.Stop()
	select {
	case <-p.gone:
	case <-late.C:
	}
}

func (p *push) worked() { p.missAt = time.Time{} }

func (p *push) missed(now time.Time) {
	if p.missAt.IsZero() {
		p.missAt = now
	}
}

// renewIfLost makes the client anew after a lost push, or after our own reads had to log in
// again: the SDK keeps a token that the server no longer knows for its whole life of hours.
func (p *push) renewIfLost(ctx context.Context, now time.Time, token string) {
	lost := !p.missAt.IsZero() && now.Sub(p.missAt) > lostAfter
	relogin := p.token != "" && token != p.token
	if p.token == "" {
		p.token = token
	}
	if !lost && !relogin {
		return
	}
	p.src.cfg.Log.Warn("making the nacos client anew", "event", "nacos_renew", "lost_push", lost, "relogin", relogin)
	p.cancel()
	p.start(ctx)
}
