package rows

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/gin-gonic/gin"
	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/httpapi"
	"github.com/sluice-io/sluice/bench/caller"
	"github.com/sluice-io/sluice/bench/pairs"
)

// HTTP returns the rows of what a submit costs the server over real connections: processor
// time of the whole process, kernel included, against an empty gin handler behind the same
// http.Server that is fed the same bytes. The service's own router, guard, chains, placer and
// renderer answer; the callers are another process. Connections are kept.
func HTTP() []pairs.Row {
	const empty = "empty gin handler, server CPU"
	return []pairs.Row{
		{Name: "submit over HTTP, sold out", Against: empty, Gate: 1.25, Goal: 1.12, Open: submits{soldOut: true, status: http.StatusOK}.againstEmpty},
		{Name: "submit over HTTP, user limited", Against: empty, Gate: 1.25, Goal: 1.12, Open: submits{limited: true, status: http.StatusTooManyRequests}.againstEmpty},
		{Name: "submit over HTTP, admitted, store in memory", Against: empty, Gate: 1.45, Goal: 1.3, Open: submits{status: http.StatusAccepted}.againstEmpty},
		{Name: "submit over HTTP, admitted, Redis", Against: "the same with the store in memory", Gate: 3, Goal: 2.1, Open: openAdmitted},
	}
}

// submits are submits of one kind.
type submits struct {
	soldOut bool // the mark is up
	limited bool // the user has no tokens
	status  int  // that every answer must have
}

// submitters is how many people there are. All have submitted once before it counts.
const submitters = 4_000

func (s submits) againstEmpty() (pairs.Bed, error) {
	funnel := newFunnel(s, newFunnelKeys(), memoryStores())
	return openHTTP(funnel.requests(submitters), func() {}, []served{
		{funnel.handler, s.status, funnel.close},
		{emptyHandler(), http.StatusOK, func() {}},
	})
}

// openAdmitted compares a service on a Redis of its own with the same on stores in memory.
func openAdmitted() (bed pairs.Bed, err error) {
	c, end, err := ownRedis()
	if err != nil {
		return pairs.Bed{}, err
	}
	defer unless(&bed, end)
	shared := newFunnelKeys()
	real, memory := newFunnel(submits{}, shared, redisStores(c)), newFunnel(submits{}, shared, memoryStores())
	opened, err := openHTTP(real.requests(submitters), func() { warm(c) }, []served{
		{real.handler, http.StatusAccepted, real.close},
		{memory.handler, http.StatusAccepted, memory.close},
	})
	if err != nil {
		return pairs.Bed{}, err
	}
	bed = opened
	bed.Close = func() {
		opened.Close()
		end()
	}
	return bed, nil
}

// warm begins the sale anew: nobody has claimed or reserved anything.
func warm(c goredis.UniversalClient) {
	ctx, now := context.Background(), time.Now()
	must(c.FlushAllAsync(ctx).Result())
	must(redis.NewStock(c, redis.StockOptions{}).Warm(ctx, admission.StockSpec{
		Ref: sku, Version: 3, Total: admission.MaxStock, OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour),
	}))
}

// emptyHandler does nothing with a submit.
func emptyHandler() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.POST("/s/:path/:sku", func(c *gin.Context) { c.Status(http.StatusOK) })
	return e
}

// served is a handler behind a listener.
type served struct {
	handler http.Handler
	status  int
	close   func()
}

// openHTTP serves the two, the subject first. anew is called before requests are sent a second time.
func openHTTP(requests [][]byte, anew func(), both []served) (pairs.Bed, error) {
	plan := caller.Plan{Requests: requests}
	var ends []func()
	end := func() {
		for _, f := range ends {
			f()
		}
	}
	for _, s := range both {
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		server := httpapi.NewServer(s.handler, unread())
		go func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				panic(fmt.Sprintf("serve: %v", err))
			}
		}()
		ends = append(ends, func() { _ = server.Close() }, s.close)
		plan.Targets = append(plan.Targets, caller.Target{Address: l.Addr().String(), Status: s.status})
	}
	callers, err := caller.Start(plan)
	if err != nil {
		end()
		return pairs.Bed{}, err
	}
	ends = append([]func(){callers.Close}, ends...)
	anew()
	for target := range both { // whoever submits has joined before: the session is remembered
		if err := callers.Send(target, 0, len(requests)); err != nil {
			panic(err)
		}
	}
	anew()
	heap := make([]byte, serverHeap)
	ends = append(ends, func() { runtime.KeepAlive(heap) })
	send := func(target int) pairs.Op {
		next := 0
		return func(n int) {
			for n > 0 {
				if next == len(requests) {
					if next = 0; target == 0 {
						anew()
					}
				}
				batch := min(n, len(requests)-next)
				if err := callers.Send(target, next, batch); err != nil {
					panic(err) // the row would measure something else
				}
				next, n = next+batch, n-batch
			}
		}
	}
	return pairs.Bed{
		Subject: send(0), Baseline: send(1), Clock: pairs.ProcessClock(),
		Run: 25 * time.Millisecond, Pairs: 41, Close: end,
	}, nil
}
