package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// What a reservation costs the stock's Redis: processor time of the primary's thread a
// call, reading the command and writing the reply included, as a ratio to SET NX with an
// expiry. That thread is what a whole sale shares. Both are sent in turn, 50 in a pipeline
// as a busy server meets them, and the median of the turns' ratios is told. Processor time
// leaves out what other programs take from a shared machine. The goal is 10 times
// reserved and 1.5 times sold out.
func BenchmarkReserveAtServer(b *testing.B) {
	own := servers.StartOwnRedis(b)
	c, err := redis.Open(b.Context(), own.URL(), redis.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, kind := range []struct {
		name  string
		total int64
		word  string
	}{
		{"reserved", 1 << 40, "RESERVED"},
		{"sold_out", 1, "SOLD_OUT"},
	} {
		b.Run(kind.name, func(b *testing.B) {
			reserve := reserver(b, c, kind.total, kind.word)
			var base, cost, ratios []float64
			for turn := range turns {
				base = append(base, cpuPerCall(b, c, func(from, n int) error {
					pipe := c.Pipeline()
					for i := from; i < from+n; i++ {
						pipe.SetNX(b.Context(), fmt.Sprintf("inv:{a:10001:s:90001}:nx:%d:%d", turn, i), "1", time.Hour)
					}
					_, err := pipe.Exec(b.Context())
					return err
				}))
				cost = append(cost, cpuPerCall(b, c, reserve))
				ratios = append(ratios, cost[turn]/base[turn])
			}
			b.ReportMetric(median(base), "setnx-usec")
			b.ReportMetric(median(cost), "reserve-usec")
			b.ReportMetric(median(ratios), "x-setnx")
			b.ReportMetric(0, "ns/op") // says nothing here: the server's time is measured
		})
	}
}

const (
	turns     = 15   // pairs of alternated runs
	turnCalls = 2000 // calls of each in a turn
	pipelined = 50   // calls in one pipeline
)

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// cpuPerCall returns microseconds of the server's main thread.
func cpuPerCall(b *testing.B, c goredis.UniversalClient, send func(from, n int) error) float64 {
	b.Helper()
	before := mainThread(b, c)
	for i := 0; i < turnCalls; i += pipelined {
		if err := send(i, pipelined); err != nil {
			b.Fatal(err)
		}
	}
	return (mainThread(b, c) - before) / turnCalls * 1e6
}

// reserver returns reservations by another user at every call. They go through the script
// itself: what the adapter does with the answer is not the server's.
func reserver(b *testing.B, c goredis.UniversalClient, total int64, want string) func(from, n int) error {
	b.Helper()
	now := time.Now()
	ref := admission.SKURef{ActivityID: strconv.FormatInt(now.UnixNano(), 10), SKUID: "90001"}
	spec := admission.StockSpec{Ref: ref, Version: 1, Total: total, OpensAt: now.Add(-time.Hour), ClosesAt: now.Add(time.Hour)}
	if _, err := redis.NewStock(c, redis.StockOptions{}).Warm(b.Context(), spec); err != nil {
		b.Fatal(err)
	}
	script, inv := redis.NewScript("reserve"), "inv:"+ref.Tag()
	user := 0
	reserve := func(_, n int) error {
		calls := make([]redis.Call, n)
		for i := range calls {
			user++
			id, request := fmt.Sprintf("7%07d", user), "req_01J2Z3K4M5N6P7Q8R9S0"
			calls[i] = redis.Call{
				Script: script,
				Keys: []string{
					inv + ":stock", inv + ":buyers", inv + ":req:" + id + ":" + request, inv + ":rsv", inv + ":pending", inv + ":log",
					inv + ":attempts", "sec:soldout:" + ref.Tag(),
				},
				Args: []any{1, id, request, fmt.Sprintf("r_%022d", user), "sha256:" + strings.Repeat("a", 64), 1, 1, 1000, 3600000},
			}
		}
		for i, r := range redis.RunAll(b.Context(), c, calls) {
			if r.Err != nil {
				return r.Err
			}
			if r.Values[0] != want && user-n+i > 0 {
				return fmt.Errorf("got %v, want %s", r.Values, want)
			}
		}
		return nil
	}
	if err := reserve(0, 1); err != nil { // loads the script, and takes the one unit of a sold-out SKU
		b.Fatal(err)
	}
	return reserve
}

// mainThread reads used_cpu_user_main_thread + used_cpu_sys_main_thread, seconds.
func mainThread(b *testing.B, c goredis.UniversalClient) (seconds float64) {
	b.Helper()
	info, err := c.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(info, "\r\n") {
		for _, name := range []string{"used_cpu_user_main_thread:", "used_cpu_sys_main_thread:"} {
			if v, ok := strings.CutPrefix(line, name); ok {
				s, err := strconv.ParseFloat(v, 64)
				if err != nil {
					b.Fatal(err)
				}
				seconds += s
			}
		}
	}
	return seconds
}
