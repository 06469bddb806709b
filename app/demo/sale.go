package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/bench/load"
)

// Config is one sale.
type Config struct {
	Target      Target
	Users       int           // 1..maxUsers
	Hostile     float64       // percent of the users
	Stock       int64         // units
	OpensIn     time.Duration // from publishing; 0: long enough for the crowd to join
	Timeout     time.Duration // of everything; default 10 min
	Stall       time.Duration // the sale is given up when nothing moves for so long; default 30 s
	Seed        uint64        // 0: from the clock
	MaxInFlight int           // requests at once, those at the door besides; default 64
	Progress    func(Progress)
}

// Progress is where the sale stands.
type Progress struct {
	State                                                                         string
	Users, Stock                                                                  int64
	Joined, Released, Tickets, Reserved, Ordered, SoldOut, Left, Refused, Faulted int64
	Elapsed                                                                       time.Duration
}

const (
	attackInFlight = 24               // hostile submits at once: they have lines of their own
	drawCloses     = time.Second      // before the opening, as the demonstration has it
	joinsPerSec    = 1_500            // of a crowd whose opening is not given; one small machine keeps up with it
	doorInFlight   = 24               // joins and sign-ins at once: what joinsPerSec needs at 15 ms each
	settle         = 45 * time.Second // for the last results: three times the reservation_ttl of recovery
	stuckAfter     = 15 * time.Second // reservation_ttl: what is LIVE for longer is listed
	openFor        = 30 * time.Minute // from opening to closing
	progressStep   = 2 * time.Second
)

func (c Config) withDefaults(now time.Time) Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.Stall == 0 {
		c.Stall = 30 * time.Second
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 64
	}
	if c.Seed == 0 {
		c.Seed = uint64(now.UnixNano())
	}
	if c.OpensIn == 0 {
		c.OpensIn = 5*time.Second + time.Duration(c.Users)*time.Second/joinsPerSec
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Users < 1 || c.Users > maxUsers {
		errs = append(errs, fmt.Errorf("--users: must be 1 to %d, not %d", maxUsers, c.Users))
	}
	if !(c.Hostile >= 0 && c.Hostile <= 100) {
		errs = append(errs, fmt.Errorf("--hostile: must be 0 to 100 percent, not %v", c.Hostile))
	}
	if c.Stock < 1 {
		errs = append(errs, fmt.Errorf("--stock: must be 1 or more, not %d", c.Stock))
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > 10_000 {
		errs = append(errs, fmt.Errorf("--max-in-flight: must be 1 to 10000, not %d", c.MaxInFlight))
	}
	if c.OpensIn < drawCloses+time.Second {
		errs = append(errs, fmt.Errorf("--opens-in: must be %v or more, not %v", drawCloses+time.Second, c.OpensIn))
	}
	if c.Timeout < c.OpensIn {
		errs = append(errs, fmt.Errorf("--timeout: must be longer than --opens-in, not %v", c.Timeout))
	}
	return errors.Join(errs...)
}

// run is one sale under way.
type run struct {
	config  Config
	offer   offer
	crowd   crowd
	people  []*person
	ledger  *ledger
	admin   admin
	client  *client.Client
	budget  *client.Budget
	edge    *edge
	shop    *shop
	before  counters
	begin   time.Time
	soldOut atomic.Int64 // Unix ns of the first document that said so; 0: none
	waiting atomic.Int64 // honest people who were sent home without a result
	came    atomic.Int64
}

// Run publishes a sale, plays it and judges it. The error says why there is no verdict; violations are in the
// report. It returns when everything that it started has ended.
func Run(ctx context.Context, c Config) (*Report, error) {
	c = c.withDefaults(time.Now())
	if err := c.validate(); err != nil {
		return nil, exit.Code(exit.Usage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	transport := &http.Transport{
		MaxIdleConnsPerHost: c.MaxInFlight + doorInFlight + attackInFlight, MaxIdleConns: 0, IdleConnTimeout: 30 * time.Second, // below the service's 60 s
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	r := &run{config: c, crowd: newCrowd(c.Seed, c.Users, c.Hostile), ledger: newLedger(), budget: client.NewBudget(0.1, 20), begin: time.Now()}
	httpClient := &http.Client{Transport: transport}
	r.admin = admin{c.Target.Admin, c.Target.Token, httpClient}
	if err := r.open(ctx, httpClient); err != nil {
		return nil, err
	}
	r.play(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, exit.Code(exit.No, errors.New("interrupted: no verdict"))
	}
	return r.close(context.WithoutCancel(ctx), httpClient), nil
}

// open publishes the sale and waits until the instances know it.
func (r *run) open(ctx context.Context, httpClient *http.Client) error {
	c := r.config
	if c.Target.Internal != "" {
		r.before, _ = scrape(ctx, httpClient, c.Target.Internal, commandCounters...) // without it the figure is n/a
	}
	now := time.Now()
	ids := rand.New(rand.NewPCG(c.Seed, 0x5a1e))
	id := now.UnixMilli()*1000 + ids.Int64N(1000)
	opensAt := now.Add(c.OpensIn).Truncate(time.Millisecond)
	r.offer = offer{strconv.FormatInt(id, 10), strconv.FormatInt(9_000_000_000+ids.Int64N(1_000_000_000), 10), c.Stock, opensAt, opensAt.Add(openFor), drawCloses}
	if err := r.admin.publish(ctx, r.offer); err != nil {
		return err
	}
	config := client.Config{HTTP: httpClient, Bases: c.Target.Public, Budget: r.budget, MaxInFlight: c.MaxInFlight, Timeout: 10 * time.Second, Observe: r.observe}
	var sources []*client.Client
	for _, base := range c.Target.Public {
		one := config
		one.Bases, one.Budget, one.MaxInFlight, one.Attempts = []string{base}, client.NewBudget(0, 1), 4, 1
		source, err := client.New(one)
		if err != nil {
			return exit.Code(exit.Usage, err)
		}
		sources = append(sources, source)
	}
	sale, skew, err := known(ctx, sources, r.offer.activityID)
	if err != nil {
		return err
	}
	r.edge = newEdge(sources, r.shown)
	config.Documents = r.edge
	if r.client, err = client.New(config); err != nil {
		return exit.Code(exit.Usage, err)
	}
	config.MaxInFlight = doorInFlight
	door, err := client.New(config)
	if err != nil {
		return exit.Code(exit.Usage, err)
	}
	config.MaxInFlight, config.Budget = attackInFlight, client.NewBudget(0, 0) // an attack is not made of retries
	attack, err := client.New(config)
	if err != nil {
		return exit.Code(exit.Usage, err)
	}
	r.shop = &shop{client: r.client, door: door, attack: attack, ledger: r.ledger, sale: sale, skuID: r.offer.skuID, sign: c.Target.Sign, opens: sale.OpensAt.Add(skew), stolen: newStolen()}
	r.people = make([]*person, c.Users)
	for i := range r.people {
		r.people[i] = r.crowd.person(i)
	}
	return nil
}

// known waits until every instance that answers knows the activity, for at most 10 s. skew is this machine's
// clock minus theirs.
func known(ctx context.Context, sources []*client.Client, activityID string) (a client.Activity, skew time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	alive := 0
	for _, source := range sources {
		for {
			got, e := source.Activity(ctx, activityID)
			if e == nil {
				a, skew, alive = got, time.Since(got.ServerTime), alive+1
				break
			}
			err = errors.Join(err, e)
			var fault *client.Fault
			if ctx.Err() != nil || errors.As(e, &fault) {
				break // it is away; the sale goes on with the others
			}
			pause(ctx, 100*time.Millisecond)
		}
	}
	if alive == 0 {
		return a, 0, exit.Code(exit.Away, fmt.Errorf("no instance shows the activity %s: %w", activityID, err))
	}
	return a, skew, nil
}

// observe takes every exchange of every client.
func (r *run) observe(x client.Exchange) {
	var p *person
	if x.UserID != "" {
		if id, err := strconv.ParseInt(x.UserID, 10, 64); err == nil {
			p = r.people[id-r.crowd.first]
		}
	}
	r.ledger.observe(p, x)
	if x.Call == client.CallTicket && x.HTTP == http.StatusOK {
		var t client.Ticket
		if json.Unmarshal(x.Body, &t) == nil && t.Ticket != "" {
			r.shop.stolen.put(t)
		}
	}
}

// shown is told of every new queue document.
func (r *run) shown(q *client.Queue) {
	if q.State == client.StateSoldOut {
		r.soldOut.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// play lets everybody come and waits until all have a result, or nothing moves any more.
func (r *run) play(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { r.edge.Run(ctx, r.offer.activityID) })
	all.Go(func() { r.watch(ctx, cancel) })
	opening := time.Until(r.shop.opens)
	window := max(opening-drawCloses-500*time.Millisecond, time.Second/2)
	// The context ends with the last person; hostile people who wait for what never comes must not hold it.
	_, _ = load.Run(ctx, load.Config{Requests: r.config.Users, Schedule: r.crowd.arrivals(window, opening), MaxInFlight: r.config.Users},
		func(ctx context.Context, s load.Shot) {
			r.came.Add(1)
			p := r.people[s.I]
			r.shop.live(ctx, p, s.Intended)
			if ctx.Err() != nil && p.kind == Honest { // sent home
				r.waiting.Add(1)
			}
		})
}

// watch reports progress and sends everybody home when the sale is over or has stalled.
func (r *run) watch(ctx context.Context, home context.CancelFunc) {
	tick := time.NewTicker(progressStep)
	defer tick.Stop()
	moves, movedAt := int64(-1), time.Now()
	for {
		r.config.Progress(r.progress())
		select {
		case <-ctx.Done():
			r.config.Progress(r.progress())
			return
		case <-tick.C:
		}
		now := time.Now()
		if n := r.ledger.moves.Load(); n != moves || r.came.Load() < int64(r.config.Users) || now.Before(r.shop.opens) {
			moves, movedAt = n, now
		}
		if now.Sub(movedAt) > r.config.Stall {
			home()
		}
	}
}

func (r *run) progress() Progress {
	l := r.ledger
	p := Progress{
		Users: int64(r.config.Users), Stock: r.config.Stock, Joined: l.joined.Load(), Released: l.released.Load(), Tickets: l.ticketed.Load(),
		Reserved: l.reserved.Load(), Ordered: l.ordered.Load(), SoldOut: l.soldOut.Load(), Left: l.left.Load(), Refused: l.refused.Load(), Elapsed: time.Since(r.begin),
	}
	if q := r.edge.copy.Load(); q != nil {
		p.State = q.State
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.calls {
		for _, n := range f.faults {
			p.Faulted += n
		}
	}
	return p
}

// close asks for the last results, counts the stores and judges.
func (r *run) close(ctx context.Context, httpClient *http.Client) *Report {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	waiting := r.waiting.Load()
	if r.soldOut.Load() != 0 {
		waiting = 0
	}
	r.lastResults(ctx)
	tally, err := r.settled(ctx)
	s := r.ledger.seen()
	s.stock, s.waiting, s.tally, s.tallyFailed = r.config.Stock, waiting, tally, err
	out := r.report(s)
	out.Violations = append(append([]Violation{}, r.ledger.violations()...), judge(s)...)
	out.OK = len(out.Violations) == 0
	if r.before != nil {
		after, err := scrape(context.WithoutCancel(ctx), httpClient, r.config.Target.Internal, commandCounters...)
		out.Commands = commandsPerAdmitted(r.before, after, err)
	}
	return out
}

// lastResults polls every 202 whose owner left before its end.
func (r *run) lastResults(ctx context.Context) {
	open := r.ledger.open()
	var all sync.WaitGroup
	place := make(chan struct{}, r.config.MaxInFlight)
	for _, a := range open {
		place <- struct{}{}
		all.Go(func() {
			defer func() { <-place }()
			_, _ = r.client.Poll(ctx, a.person, r.offer.activityID, r.offer.skuID, a.requestID, a.answer) // the ledger sees the answers
		})
	}
	all.Wait()
}

// settled counts until nothing is on its way between the stores any more, or the time is over.
func (r *run) settled(ctx context.Context) (t Tally, err error) {
	for {
		counted, e := r.admin.tally(context.WithoutCancel(ctx), r.offer)
		if e == nil {
			t, err = counted, nil
			if t.Stock.Live == 0 && t.Orders.EffectsDue == 0 {
				return t, nil
			}
		} else if err = e; t.Stock.Total != 0 {
			err = nil // an older count is better than none
		}
		if ctx.Err() != nil {
			return t, err
		}
		pause(ctx, 500*time.Millisecond)
	}
}
