package main

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/activity"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/console"
	"github.com/sluice-io/sluice/app/control"
	"github.com/sluice-io/sluice/app/directory"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/guard"
	"github.com/sluice-io/sluice/app/httpapi"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/lease"
	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/app/order"
	"github.com/sluice-io/sluice/app/session"
	"github.com/sluice-io/sluice/app/soldout"
	"github.com/sluice-io/sluice/app/ticket"
	"github.com/sluice-io/sluice/app/waitroom"
	"github.com/sluice-io/sluice/nacos"
	"github.com/sluice-io/sluice/rules"
	"github.com/sluice-io/sluice/slots"
)

// embeddedSlowness is how many times the stage budgets an embedded service gets: its
// store interprets Lua about ten times slower and shares the machine.
const embeddedSlowness = 10

// service is one process: everything wired, nothing running yet. It is the only place
// that knows every concrete type.
type service struct {
	config   *config.Config
	boot     string // of this start, where instance.id is fixed
	log      *slog.Logger
	registry *prometheus.Registry
	clock    limit.Clock
	stores   *stores
	keyring  *keyring

	ring     *ticket.Ring
	sessions *session.Verifier
	signer   atomic.Pointer[keys.Key] // of development sessions: the first of the session keys
	watched  []*keys.Watched

	rules     *rules.Applier
	source    rules.Source
	directory *directory.Directory
	board     *soldout.Board
	leases    *lease.Client
	gate      *slots.Gate

	limiterBreaker, stockBreaker *guard.Breaker
	room                         *waitroom.Room

	sender       *order.Sender
	marks        *order.Marks
	placer       *order.Placer
	consumer     *order.Consumer
	recovery     *order.Recovery
	reconciler   *order.Reconciler
	orderMetrics *order.Metrics
	publisher    *activity.Publisher

	leader  *control.Leader
	fleet   *control.Fleet
	waves   *control.Waves
	budgets *control.Budgets

	applying sync.Mutex
	evicting atomic.Bool // a store's eviction policy may lose stock or nonces
	share    share
	operator atomic.Int32 // the operator's mode on this instance
	wakeRoom chan struct{}
	changed  chan struct{} // rules came into force: tell the fleet
	results  httpapi.Results
	draining atomic.Bool

	public, internal, admin http.Handler
}

// newService opens the stores and wires everything. The caller closes it.
func newService(ctx context.Context, c *config.Config, log *slog.Logger) (_ *service, err error) {
	s := &service{config: c, boot: strings.ToLower(crand.Text()[:8]), log: log, clock: limit.NewClock(), registry: prometheus.NewRegistry(), wakeRoom: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := rules.InitSentinel(log); err != nil {
		return nil, err
	}
	if s.keyring, err = loadKeys(c); err != nil {
		return nil, err
	}
	if s.stores, err = openStores(ctx, c, s.registry, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.registry.MustRegister(gauges{s})
	for _, build := range []func() error{s.buildKeys, s.buildRules, s.buildFunnel, s.buildOrders, s.buildControl, s.buildListeners} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *service) close() { s.stores.close() }

func (s *service) now() time.Time { return time.Now().UTC() }

// buildKeys loads the ticket ring and the session keys, and watches their files.
func (s *service) buildKeys() error {
	watch := func(path string, use func(keys.Set) error) error {
		w, err := keys.Watch(path, use)
		if err == nil {
			s.watched = append(s.watched, w)
		}
		return err
	}
	err := watch(s.keyring.ticketFile, func(set keys.Set) (err error) {
		if s.ring == nil {
			s.ring, err = ticket.NewRing(set, ticket.Config{})
			return err
		}
		if err := s.ring.Swap(set); err != nil {
			return err
		}
		s.apply() // the rules may have been waiting for this key
		return nil
	})
	if err != nil {
		return exit.Code(exit.Usage, fmt.Errorf("ticket.keys: %w", err))
	}
	err = watch(s.keyring.sessionFile, func(set keys.Set) (err error) {
		if s.sessions == nil {
			s.sessions, err = session.NewVerifier(set, session.Config{Issuer: s.config.SessionIssuer, Audience: s.config.SessionAudience})
		} else {
			err = s.sessions.Swap(set)
		}
		if err == nil {
			first := set.First()
			s.signer.Store(&first)
		}
		return err
	})
	if err != nil {
		return exit.Code(exit.Usage, fmt.Errorf("session.keys: %w", err))
	}
	return nil
}

// buildRules makes the applier and its source.
func (s *service) buildRules() error {
	c := s.config
	applier := rules.Config{
		InstanceID: c.InstanceID, LastGood: lastGoodRules(c), Origin: rulesOrigin(c),
		Now: time.Now, Log: s.log, Metrics: rules.NewMetrics(s.registry), KnowsKey: s.ring.Has,
	}
	switch c.RulesSource {
	case "nacos":
		applier.HighWater = s.stores.fleet.HighWater
		src, err := nacos.New(nacos.Config{
			Servers: c.Nacos.Servers, Namespace: c.Nacos.Namespace, Group: c.Nacos.Group, DataID: c.Nacos.DataID,
			Username: c.Nacos.Username, Password: c.Nacos.Password, Log: s.log,
			CacheDir: filepath.Join(c.DataDir, "nacos"), // ours alone, and gone with the rest when we are killed
		})
		if err != nil {
			return exit.Code(exit.Usage, fmt.Errorf("nacos.servers: %w", err))
		}
		s.source = src
	case "file":
		path := c.RulesFile
		var create []byte
		if path == "" {
			path, create = filepath.Join(c.DataDir, "rules.json"), rules.DefaultDocument()
		}
		s.source = &rules.FileSource{Path: path, Create: create}
	default:
		return exit.Code(exit.Usage, errNoZooKeeper)
	}
	s.rules = rules.NewApplier(applier)
	s.rules.OnApply(func(*rules.Snapshot) {
		s.apply()
		select {
		case s.changed <- struct{}{}:
		default:
		}
	})
	return nil
}

var errNoZooKeeper = errors.New("rules.source: zookeeper is not served by this version; use file or nacos")

// apply puts the snapshot in force, for the SKUs that are known now, everywhere.
func (s *service) apply() {
	s.applying.Lock() // rules and directory both call it: the newer snapshot must win
	defer s.applying.Unlock()
	snap := s.rules.Snapshot()
	if snap == nil {
		return
	}
	refs := s.directory.SKUs(s.now())
	s.gate.Apply(snap, refs, s.clock.Now())
	s.board.Serve(refs, func(ref admission.SKURef) time.Duration { return snap.Policy(ref).LocalSoldOutTTL })
	s.leases.Apply(leasePolicies(snap, refs, s.budgetsInForce().LeaseAsk))
	s.limiterBreaker.Apply(breakerPolicy(snap.Guards.Breaker))
	s.stockBreaker.Apply(breakerPolicy(snap.Guards.Breaker))
	if err := s.ring.SetActive(snap.TicketKeyID); err != nil {
		s.log.Error("the rules name a ticket key that is not in the ring", "event", "ticket_key", "key_id", snap.TicketKeyID, "error", err)
	}
}

func breakerPolicy(p rules.BreakerPolicy) guard.Policy {
	return guard.Policy{FailureRatio: p.FailureRatio, MinCalls: p.MinCalls, Window: p.Window, Open: p.Open, MaxOpen: p.MaxOpen, Successes: p.Successes}
}

// buildFunnel makes what a request meets up to the reservation.
func (s *service) buildFunnel() error {
	s.directory = directory.New(s.stores.mirror, s.log)
	s.board = soldout.New(s.stores.stocks, func() int64 { return int64(s.clock.Now()) }, soldout.NewMetrics(s.registry))
	budgets := s.budgetsInForce()
	s.limiterBreaker, s.stockBreaker = guard.NewBreaker("limiter", guard.DefaultPolicy()), guard.NewBreaker("stock", guard.DefaultPolicy())
	guard.Register(s.registry, s.limiterBreaker, s.stockBreaker)
	var err error
	s.leases, err = lease.NewClient(lease.Config{
		Store: s.stores.leases, Limiters: redis.NewLimiters(s.stores.limiter), Share: s.share.of,
		InstanceID: s.config.InstanceID, Boot: s.boot, Registerer: s.registry,
		SyncBudget: budgets.LeaseAsk, AskTimeout: max(100*time.Millisecond, 2*budgets.LeaseAsk),
	})
	if err != nil {
		return err
	}
	hasher := limit.NewHasher()
	s.gate, err = slots.NewGate(slots.Config{
		Mode: s.mode,
		Verify: func(token string, now time.Time) (string, bool) {
			id, reason := s.sessions.Verify(token, now)
			return id.UserID, reason == session.OK
		},
		Ring: s.ring, Board: s.board, Nonces: guard.NewNonces(s.stores.nonces, s.limiterBreaker), Hasher: hasher, Clock: s.clock.Now,
		Spend: func(ctx context.Context, ref admission.SKURef) (func(), admission.Decision) {
			token, d := s.leases.Spend(ctx, ref)
			return func() { s.leases.Return(token) }, d
		},
		Limiters: redis.NewLimiters(s.stores.limiter), HashUser: s.hashUser,
		SourceKey:  func(p netip.Prefix) uint64 { return source.PrefixKey(hasher, p) },
		Budgets:    func() slots.Budgets { return slots.Budgets{Claim: s.budgetsInForce().Claim} },
		Registerer: s.registry,
	})
	if err != nil {
		return err
	}
	deriver, err := ticket.NewDeriver(s.keyring.nonce)
	if err != nil {
		return exit.Code(exit.Usage, fmt.Errorf("nonce.key: %w", err))
	}
	if _, err := waitroom.DeriveSecret(s.keyring.draw, "1", 1, time.Time{}); err != nil {
		return exit.Code(exit.Usage, fmt.Errorf("draw.key: %w", err))
	}
	s.room = waitroom.New(waitroom.Config{
		Store: s.stores.room, Standby: s.stores.roomCopy, Ring: s.ring, Deriver: deriver, DrawKey: s.keyring.draw,
		Now: s.now, Log: s.log, Metrics: waitroom.NewMetrics(s.registry),
		Holder: s.board.Holder, SoldOut: s.board.SoldOut, MayReturn: s.board.MayReturn,
		Policy: func(ref admission.SKURef) waitroom.Policy {
			p := s.policy(ref)
			return waitroom.Policy{TicketTTL: p.TicketTTL, LongestPoll: p.Waves.LongestPoll, Mode: max(p.Mode, s.mode()), ChallengeBits: p.ChallengeBits, StrictSequence: p.Waves.StrictSequence}
		},
	})
	return s.buildPlacer(deriver)
}

// buildPlacer makes the last step of a submit.
func (s *service) buildPlacer(deriver *ticket.Deriver) error {
	metrics := order.NewMetrics(s.registry)
	s.marks = order.NewMarks(s.stores.stocks, order.MarksConfig{}, metrics, s.log)
	var err error
	if s.sender, err = order.NewSender(s.stores.queue, order.SenderConfig{}, s.marks.Add, metrics); err != nil {
		return err
	}
	s.placer, err = order.NewPlacer(guard.NewStock(s.stores.stocks, s.stockBreaker), s.sender, order.PlacerConfig{
		ReservationID: func(ref admission.SKURef, user, request string) string {
			return deriver.ReservationID(ref.ActivityID, ref.SKUID, user, request)
		},
		Budgets: func() order.Budgets {
			b := s.budgetsInForce()
			return order.Budgets{Stock: b.Stock, Queue: b.Queue, Replicas: b.Queue}
		},
		WaitReplicas: s.config.WaitReplicas,
		SoldOut:      s.board.Observe,
		Missing: func(ref admission.SKURef) {
			s.log.Error("the stock of a SKU on sale is missing", "event", "stock_missing", "activity_id", ref.ActivityID, "sku_id", ref.SKUID)
		},
	}, metrics, s.log)
	if err != nil {
		return err
	}
	s.consumer = order.NewConsumer(s.stores.orders, s.stores.stocks, order.ConsumerConfig{}, metrics, s.log)
	s.orderMetrics = metrics
	s.reconciler = order.NewReconciler(s.stores.stocks, s.stores.orders, order.ReconcilerConfig{}, metrics, s.log)
	s.recovery = order.NewRecovery(s.stores.stocks, s.stores.orders, s.stores.queue, order.RecoveryConfig{}, metrics, s.log)
	results := order.NewResults(s.stores.stocks, s.stores.orders, func(ref admission.SKURef) order.Look {
		a := s.directory.ByID(ref.ActivityID)
		return order.Look{Selling: !s.directory.Read() || a != nil && !a.Ended && a.SKU(ref.SKUID) != nil, Open: s.board.Open(ref)}
	})
	orders := order.NewService(s.stores.orders, s.stores.stocks, s.now, metrics, s.log)
	s.results = httpapi.Results{Request: results.Request, Order: orders.Order, Cancel: orders.Cancel, Pay: orders.Pay}
	return nil
}

// buildOrders makes publishing.
func (s *service) buildOrders() error {
	s.publisher = &activity.Publisher{
		Orders: s.stores.orders, Stock: s.stores.stocks, Mirror: s.stores.mirror, Events: s.stores.events,
		Now: s.now, NewPath: ticket.NewPathID, Random: crand.Reader,
	}
	return nil
}

// buildControl makes what the leader runs, and this instance's line in the fleet.
func (s *service) buildControl() error {
	s.fleet = &control.Fleet{Store: s.stores.fleet, Now: s.now, Log: s.log, Self: s.line, Changed: s.changed}
	s.leader = &control.Leader{Locks: s.stores.locks, Orders: s.stores.orders, Log: s.log}
	s.waves = &control.Waves{
		Room: s.stores.room, Standby: s.stores.roomCopy, Stock: s.stores.stocks, Events: s.stores.events, Seed: s.room.Seed,
		Policy: s.wavePolicy, Lines: s.fleet.Lines, Now: s.now, Log: s.log, Metrics: control.NewMetrics(s.registry),
	}
	s.budgets = &control.Budgets{Leases: s.stores.leases, Wanted: s.wantedBudgets}
	return nil
}

func (s *service) line() control.Line {
	status := s.rules.Status()
	last, err := json.Marshal(status.LastError)
	if err != nil {
		last = []byte("null")
	}
	return control.Line{
		InstanceID: s.config.InstanceID, Boot: s.boot, Version: status.Version, Hash: status.Hash, Canary: status.Canary, Source: status.Source, AgeMS: status.AgeMS,
		LastError: last, Mode: s.mode().String(), Roles: s.config.Roles, Counts: s.room.Counted(),
	}
}

// buildListeners makes the three handlers.
func (s *service) buildListeners() error {
	resolver, err := source.NewResolver(source.Config{Trusted: s.config.TrustedCIDRs})
	if err != nil {
		return exit.Code(exit.Usage, fmt.Errorf("edge.trusted_cidrs: %w", err))
	}
	funnel := httpapi.NewMetrics(s.registry)
	logs := httpapi.NewLog(s.log, s.now, s.hashUser)
	deps := httpapi.Deps{
		Now: s.now, Mono: func() int64 { return int64(s.clock.Now()) }, Jitter: rand.Float64, Log: s.log,
		ByPath: s.directory.ByPath, ByID: s.directory.ByID, Read: s.directory.Read,
		Source: s.sourceOf(resolver), GatewayUser: s.gatewayUser(resolver),
		Budget: func() time.Duration { return s.budgetsInForce().Total() },
		Enter:  s.gate.Enter, Reserve: s.gate.Reserve, Place: s.place, Call: s.gate.Call,
		ChargeSource: s.gate.ChargeSource, Served: funnel.Served,
		Decided: func(call admission.Call, req *admission.Request, d admission.Decision) {
			if call == admission.CallSubmit && d.Outcome.Shed() && req.Nonce != "" {
				s.room.Shed(req)
			}
			funnel.Decided(call, req, d)
			logs.Decided(call, req, d)
		},
		Room:    httpapi.Room{Join: s.room.Join, Exchange: s.room.Exchange, Queue: s.room.Queue, Commitment: s.room.Commitment},
		Results: s.results,
	}
	if s.stores.server != nil {
		deps.SignIn = s.signIn
	}
	if deps.Page, err = s.page(deps); err != nil {
		return err
	}
	s.public = httpapi.New(deps)
	if !s.config.Has("gateway") {
		s.public = httpapi.Absent(s.now, rand.Float64)
	}
	s.internal = httpapi.NewInternal(httpapi.InternalDeps{
		Now: s.now, Jitter: rand.Float64, Log: s.log, PaymentKey: s.keyring.payment, Pay: s.results.Pay, Unready: s.unready,
		Metrics: promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}),
	})
	s.admin = console.New(console.Deps{
		Tokens: s.keyring.admin, Log: s.log, Now: s.now,
		Publish: s.publisher.Publish, End: s.publisher.End, List: s.publisher.List, Tally: s.tally,
		Rules:       func() any { return s.rules.Status() },
		RulesStatus: func(ctx context.Context) (any, error) { return s.fleet.Status(ctx) },
		Bundle:      s.bundle,
		Mode:        s.mode,
		SetMode:     func(m admission.Mode) error { s.operator.Store(int32(m)); return nil },
		Limiter:     s.gate.InspectLimiter, Reset: s.gate.ResetLimiter,
		Top: func(n int) any { return s.gate.Top(n) },
	})
	return nil
}

func (s *service) place(ctx context.Context, req *admission.Request) admission.Decision {
	d := s.placer.Place(ctx, req)
	if !d.Refused() {
		s.room.Reserved(req)
	}
	return d
}

func (s *service) bundle() []byte {
	if snap := s.rules.Snapshot(); snap != nil {
		return snap.Bundle.Encode()
	}
	return []byte("null")
}

func (s *service) tally(ctx context.Context, ref admission.SKURef) (st admission.StockTally, ot admission.OrderTally, err error) {
	if st, err = s.stores.stocks.Tally(ctx, ref); err != nil {
		return st, ot, err
	}
	ot, err = s.stores.orders.Tally(ctx, ref)
	return st, ot, err
}
