package rows

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/bench/pairs"
)

// StockScripts returns the rows of what a reservation costs the stock's Redis, against a SET
// NX with an expiry, the cheapest thing that makes a request idempotent. Both are sent in
// turn, pipelined so that the server and not the client is busy, to a Redis of the row's own
// with the stock's settings: statistics are the server's, and tests use the shared one. A SKU
// has the 10,000 units of the design load.
//
// What is judged is processor time of the server's thread, which is what a whole sale shares;
// it includes reading the command and writing the reply. The server's own count (INFO
// commandstats) leaves these out and is wall time: whoever else wants the processor is in it,
// and the longer call meets more of them. It is told beside.
func StockScripts() []pairs.Row {
	const thread, wall = "SET NX, processor time of Redis's thread", "SET NX, usec of INFO commandstats"
	reserved, soldOut, empty := reservations{units: skuUnits, reply: "RESERVED"}, reservations{units: 1, reply: "SOLD_OUT"}, reservations{units: 1, empty: true}
	return []pairs.Row{
		{Name: "reserve script, reserved", Against: thread, Gate: 12, Goal: 10, Open: reserved.open(mainThread)},
		{Name: "reserve script, sold out", Against: thread, Gate: 2, Goal: 1.5, Open: soldOut.open(mainThread)},
		{Name: "script that returns, given the keys and arguments of reserve", Against: thread, Open: empty.open(mainThread)},
		{Name: "reserve script, reserved, wall time", Against: wall, Open: reserved.open(commandStats)},
		{Name: "reserve script, sold out, wall time", Against: wall, Open: soldOut.open(commandStats)},
	}
}

const skuUnits = 10_000

// reservations are calls of one SKU, each by another user.
type reservations struct {
	units int64
	reply string // that every call must get
	empty bool   // a script that does nothing: what no reservation can be cheaper than
}

func (r reservations) open(clock func(goredis.UniversalClient) time.Duration) func() (pairs.Bed, error) {
	return func() (pairs.Bed, error) { return r.bed(clock) }
}

func (r reservations) bed(clock func(goredis.UniversalClient) time.Duration) (bed pairs.Bed, err error) {
	c, end, err := ownRedis()
	if err != nil {
		return pairs.Bed{}, err
	}
	defer unless(&bed, end)
	s := &stockServer{reservations: r, client: c, stock: redis.NewStock(c, redis.StockOptions{})}
	subject := s.reserve
	if r.empty {
		s.digest = must(c.ScriptLoad(context.Background(), "return 'X'").Result())
		subject = s.returns
	}
	s.anew()
	return pairs.Bed{
		Subject: s.many(subject), Baseline: s.many(s.setNX), Run: 4 * time.Millisecond, Pairs: 41,
		Clock: func() time.Duration { return clock(c) },
		Close: end,
	}, nil
}

// ownRedis starts a Redis with the stock's settings. end stops it.
func ownRedis() (c goredis.UniversalClient, end func(), err error) {
	dir, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return nil, nil, err
	}
	own, err := servers.NewOwnRedis(dir, "--appendonly", "yes", "--appendfsync", "everysec")
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	stop := func() {
		own.Kill()
		_ = os.RemoveAll(dir)
	}
	c, err = redis.Open(context.Background(), own.URL(), redis.Options{Timeout: 5 * time.Second, PoolTimeout: 5 * time.Second})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return c, func() {
		_ = c.Close()
		stop()
	}, nil
}

// unless ends what was begun for a bed that was not made, because of an error or a panic.
func unless(made *pairs.Bed, end func()) {
	if made.Close == nil {
		end()
	}
}

// stockServer is a Redis with one SKU.
type stockServer struct {
	reservations
	client goredis.UniversalClient
	stock  *redis.Stock
	digest string // of the empty script
	sent   int    // calls since the SKU was warmed
}

var sku = admission.SKURef{ActivityID: "10001", SKUID: "90001"}

// anew begins with an empty server, so that it never holds more than a sale does.
func (s *stockServer) anew() {
	ctx, now := context.Background(), time.Now()
	must(s.client.FlushAllAsync(ctx).Result()) // freed by another thread
	must(s.stock.Warm(ctx, admission.StockSpec{Ref: sku, Version: 1, Total: s.units, OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour)}))
	if s.sent = 0; s.units == 1 { // take the unit
		must(s.stock.Reserve(ctx, s.user(0)))
	}
}

const pipelined = 50 // calls in one pipeline

// many makes n calls, each with a number of its own since anew.
func (s *stockServer) many(send func(from, n int)) pairs.Op {
	return func(n int) {
		for n > 0 {
			batch := min(n, pipelined, skuUnits-s.sent)
			send(s.sent+1, batch)
			n -= batch
			if s.sent += batch; s.sent == skuUnits {
				s.anew()
			}
		}
	}
}

func (s *stockServer) user(number int) admission.ReserveArgs {
	return admission.ReserveArgs{
		Ref: sku, Version: 1, UserID: fmt.Sprintf("7%07d", number), RequestID: fmt.Sprintf("req_%020d", number),
		ReservationID: fmt.Sprintf("r_%022d", number), BodyHash: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Quantity: 1, MaxAttempts: 1, SendGrace: time.Second, RecordTTL: time.Hour,
	}
}

// reserve sends calls as the adapter builds them; what it does with the replies is not the server's.
func (s *stockServer) reserve(from, n int) {
	calls := make([]redis.Call, n)
	for i := range calls {
		calls[i] = s.stock.ReserveCall(s.user(from + i))
	}
	for _, r := range redis.RunAll(context.Background(), s.client, calls) {
		if r.Err != nil || fmt.Sprint(r.Values[0]) != s.reply {
			panic(fmt.Sprintf("reserve: %v, %v", r.Values, r.Err)) // the row would measure something else
		}
	}
}

// returns sends the same to a script that does nothing.
func (s *stockServer) returns(from, n int) {
	pipe := s.client.Pipeline()
	for i := range n {
		call := s.stock.ReserveCall(s.user(from + i))
		pipe.EvalSha(context.Background(), s.digest, call.Keys, call.Args...)
	}
	must(pipe.Exec(context.Background()))
}

func (s *stockServer) setNX(from, n int) {
	pipe := s.client.Pipeline()
	for i := range n {
		pipe.SetNX(context.Background(), fmt.Sprintf("inv:{a:10001:s:90001}:nx:7%07d:req_%020d", from+i, from+i), "1", time.Hour)
	}
	must(pipe.Exec(context.Background()))
}

// commandStats is the time that Redis says it has spent in the two commands, what scripts call included.
func commandStats(c goredis.UniversalClient) (spent time.Duration) {
	for line := range strings.SplitSeq(must(c.Info(context.Background(), "commandstats").Result()), "\r\n") {
		if strings.HasPrefix(line, "cmdstat_set:") || strings.HasPrefix(line, "cmdstat_evalsha:") {
			_, usec, _ := strings.Cut(line, "usec=")
			usec, _, _ = strings.Cut(usec, ",")
			spent += time.Duration(must(strconv.ParseInt(usec, 10, 64))) * time.Microsecond
		}
	}
	return spent
}

// mainThread is the processor time of the thread that executes commands.
func mainThread(c goredis.UniversalClient) (spent time.Duration) {
	for line := range strings.SplitSeq(must(c.Info(context.Background(), "cpu").Result()), "\r\n") {
		if name, seconds, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "_main_thread") {
			spent += time.Duration(must(strconv.ParseFloat(seconds, 64)) * float64(time.Second))
		}
	}
	return spent
}
