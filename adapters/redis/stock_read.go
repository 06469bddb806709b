package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/app/admission"
)

// Record implements admission.Stock. A record that has expired before its outcome is
// told from the user's reservation, so that a live one never reads as absent.
func (s *Stock) Record(ctx context.Context, ref admission.SKURef, userID, requestID string) (admission.RequestRecord, error) {
	k := keysOf(ref)
	pipe := s.client.Pipeline()
	fieldsCmd := pipe.HMGet(ctx, k.request(userID, requestID), "body_hash", "reservation_id", "order_id", "code")
	heldCmd := pipe.HGet(ctx, k.buyers(), userID)
	_, _ = pipe.Exec(ctx) // each command carries its own error
	values, err := fieldsCmd.Result()
	if err != nil {
		return admission.RequestRecord{}, Classify("record", err)
	}
	if len(values) == 4 && values[0] != nil {
		if values[2] == nil {
			values[2] = "" // no order yet
		}
		f := fields{op: "record", left: append([]any{requestID}, values...)}
		r := f.record()
		return r, f.end()
	}
	held, err := heldCmd.Result()
	if err != nil {
		return admission.RequestRecord{}, Classify("record", err) // an absent value is ErrNotFound
	}
	text, err := s.client.HGet(ctx, k.rsv(), held).Result()
	if err != nil {
		return admission.RequestRecord{}, Classify("record", err)
	}
	r, err := parseReservation(ref, held, text)
	if err != nil {
		return admission.RequestRecord{}, err
	}
	if r.RequestID != requestID {
		return admission.RequestRecord{}, Classify("record", goredis.Nil)
	}
	return admission.RequestRecord{
		RequestID: requestID, BodyHash: r.BodyHash, ReservationID: r.ID, OrderID: r.OrderID, Outcome: stateOutcomes[r.State],
	}, nil
}

// stateOutcomes reads a reservation's state as its owner polls it.
var stateOutcomes = map[admission.ReservationState]admission.Outcome{
	admission.Live: admission.PollQueued, admission.Created: admission.PollOrderCreated,
	admission.Paid: admission.PollOrderPaid, admission.Returned: admission.PollOrderCancelled,
	admission.Duplicate: admission.PollDuplicate, admission.NoCapacity: admission.PollNoCapacity,
}

// Snapshot implements admission.Stock in one script: stock and log length of one moment.
func (s *Stock) Snapshot(ctx context.Context, ref admission.SKURef) (admission.StockSnapshot, error) {
	k := keysOf(ref)
	values, err := s.scripts.snapshot.Run(ctx, s.client, []string{k.stock(), k.log(), k.rsv(), k.buyers()})
	if err != nil {
		return admission.StockSnapshot{}, err
	}
	if len(values) == 1 && values[0] == "MISSING" {
		return admission.StockSnapshot{}, Classify("snapshot of "+k.tag, goredis.Nil)
	}
	if len(values) == 1 && values[0] == "UNREADABLE" { // lost as a missing one is: a restore makes it anew
		return admission.StockSnapshot{}, &Fault{
			Op: "snapshot of " + k.tag, Kind: KindMissing, Sentinel: admission.ErrNotFound, Err: errors.New("a field of the stock cannot be read"),
		}
	}
	f := fields{op: "snapshot of " + k.tag, left: values}
	n := admission.StockSnapshot{Total: f.int(), Remaining: f.int(), Mark: f.mark(), Open: f.int() == 1}
	n.OpensAt, n.ClosesAt = time.UnixMilli(f.int()), time.UnixMilli(f.int())
	return n, f.end()
}

// MaxLogPage bounds one page of the log.
const MaxLogPage = 1000

// Log implements admission.Stock. limit is at most MaxLogPage.
func (s *Stock) Log(ctx context.Context, ref admission.SKURef, from int64, limit int) ([]admission.LogEvent, error) {
	if limit = min(limit, MaxLogPage); limit < 1 || from < 0 {
		return nil, nil
	}
	lines, err := s.client.LRange(ctx, keysOf(ref).log(), from, from+int64(limit)-1).Result()
	if err != nil {
		return nil, Classify("log", err)
	}
	events := make([]admission.LogEvent, len(lines))
	for i, line := range lines {
		if events[i], err = parseLogEvent(line); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// parseLogEvent reads kind|user|request|body_hash|reservation_id|order_id|code|attempt|freed.
func parseLogEvent(line string) (admission.LogEvent, error) {
	p := strings.Split(line, "|")
	if len(p) != 9 {
		return admission.LogEvent{}, wrongShape("log", line)
	}
	attempt, err := strconv.ParseInt(p[7], 10, 64)
	outcome, known := codeOutcomes[p[6]]
	if err != nil || (!known && p[6] != "") {
		return admission.LogEvent{}, wrongShape("log", line)
	}
	return admission.LogEvent{
		Kind: admission.LogKind(p[0]), UserID: p[1], RequestID: p[2], BodyHash: p[3], ReservationID: p[4],
		OrderID: p[5], Outcome: outcome, Attempt: attempt, FreesUser: p[8] == "1",
	}, nil
}

const (
	scanPart  = 500 // reservations read at once
	tallyRuns = 3   // how often a count that was overtaken is begun anew
)

// Tally implements admission.Stock. It reads in parts, so a busy SKU moves under it: when
// the log grew meanwhile it counts again, at most three times, and then returns a count
// that need not be of one moment. Two passes tell a difference from a movement.
func (s *Stock) Tally(ctx context.Context, ref admission.SKURef) (admission.StockTally, error) {
	var t admission.StockTally
	for range tallyRuns {
		before, err := s.Snapshot(ctx, ref)
		if err != nil {
			return admission.StockTally{}, err
		}
		if t, err = s.count(ctx, ref); err != nil {
			return admission.StockTally{}, err
		}
		after, err := s.Snapshot(ctx, ref)
		if err != nil {
			return admission.StockTally{}, err
		}
		t.Total, t.Remaining = after.Total, after.Remaining
		if before == after {
			break
		}
	}
	return t, nil
}

func (s *Stock) count(ctx context.Context, ref admission.SKURef) (admission.StockTally, error) {
	t := admission.StockTally{Orders: make(map[string]admission.ReservationState)}
	err := s.scan(ctx, ref, func(r admission.Reservation) {
		if _, twice := t.Orders[r.ID]; twice {
			return // HSCAN may name one twice
		}
		t.Orders[r.ID] = r.State
		t.Reservations++
		switch r.State {
		case admission.Live:
			t.Live += r.Quantity
		case admission.Created:
			t.Created += r.Quantity
		case admission.Paid:
			t.Paid += r.Quantity
		case admission.Returned:
			t.Returned += r.Quantity
		case admission.Duplicate:
			t.Duplicate += r.Quantity
		case admission.NoCapacity:
			t.NoCapacity += r.Quantity
		}
	}, nil)
	if err != nil {
		return admission.StockTally{}, err
	}
	k := keysOf(ref)
	pipe := s.client.Pipeline()
	buyers, pending := pipe.HLen(ctx, k.buyers()), pipe.ZCard(ctx, k.pending())
	if _, err := pipe.Exec(ctx); err != nil {
		return admission.StockTally{}, Classify("tally", err)
	}
	t.Buyers, t.Pending = buyers.Val(), pending.Val()
	return t, nil
}

// scan calls one for every reservation, and part after every part of them; part may be nil.
func (s *Stock) scan(ctx context.Context, ref admission.SKURef, one func(admission.Reservation), part func() error) error {
	var cursor uint64
	for {
		pairs, next, err := s.client.HScan(ctx, keysOf(ref).rsv(), cursor, "", scanPart).Result()
		if err != nil {
			return Classify("scan", err)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			r, err := parseReservation(ref, pairs[i], pairs[i+1])
			if err != nil {
				return err
			}
			one(r)
		}
		if part != nil {
			if err := part(); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// Remove implements admission.Stock. The stock goes first, so that nothing is reserved
// any more, and the reservations last, so that a Remove that was cut off can begin again.
// UNLINK frees large keys beside the server's thread.
func (s *Stock) Remove(ctx context.Context, ref admission.SKURef) error {
	k := keysOf(ref)
	if err := s.unlink(ctx, k.stock(), k.soldOut()); err != nil {
		return err
	}
	var records []string
	err := s.scan(ctx, ref,
		func(r admission.Reservation) { records = append(records, k.request(r.UserID, r.RequestID)) },
		func() error {
			for len(records) > 0 {
				n := min(len(records), scanPart)
				if err := s.unlink(ctx, records[:n]...); err != nil {
					return err
				}
				records = records[n:]
			}
			return nil
		})
	if err != nil {
		return err
	}
	return s.unlink(ctx, k.buyers(), k.pending(), k.log(), k.attempts(), k.replica(), k.rsv())
}

func (s *Stock) unlink(ctx context.Context, keys ...string) error {
	return Classify("remove", s.client.Unlink(ctx, keys...).Err())
}

// Replicas implements admission.Stock: a write and WAIT on one connection of the SKU's
// node. WAIT knows only its own connection's writes, but a replica that holds this one
// holds everything before it.
func (s *Stock) Replicas(ctx context.Context, ref admission.SKURef, n int, within time.Duration) error {
	if n <= 0 {
		return nil
	}
	k := keysOf(ref)
	node, err := s.node(ctx, k.replica())
	if err != nil {
		return Classify("replicas", err)
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }() // back to the pool
	if err := conn.Set(ctx, k.replica(), "1", time.Minute).Err(); err != nil {
		return Classify("replicas", err)
	}
	got, err := conn.Wait(ctx, n, within).Result()
	if err != nil {
		return Classify("replicas", err)
	}
	if got < int64(n) {
		return &Fault{
			Op: "replicas", Kind: KindNoReplicas, Sentinel: admission.ErrUnavailable,
			Err: fmt.Errorf("%d of %d replicas within %v", got, n, within),
		}
	}
	return nil
}

func (s *Stock) node(ctx context.Context, key string) (*goredis.Client, error) {
	switch c := s.client.(type) {
	case *goredis.Client:
		return c, nil
	case *goredis.ClusterClient:
		return c.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("client %T has no nodes", c)
	}
}

// Policy implements admission.Stock: every primary must refuse writes when it is full
// (noeviction), since an evicted reservation would be sold again, and must replicate what
// scripts did rather than the scripts (5.0 and later), since they read the clock.
func (s *Stock) Policy(ctx context.Context) error {
	if c, ok := s.client.(*goredis.ClusterClient); ok {
		return c.ForEachMaster(ctx, policy)
	}
	c, err := s.node(ctx, "")
	if err != nil {
		return Classify("policy", err)
	}
	return policy(ctx, c)
}

// Policy is Stock.Policy for any store that must not forget: the limiter store holds the
// nonces.
func Policy(ctx context.Context, c goredis.UniversalClient) error {
	return (&Stock{client: c}).Policy(ctx)
}

func policy(ctx context.Context, c *goredis.Client) error {
	pipe := c.Pipeline()
	memory, server := pipe.Info(ctx, "memory"), pipe.Info(ctx, "server")
	if _, err := pipe.Exec(ctx); err != nil {
		return Classify("policy", err)
	}
	if found := infoLine(memory.Val(), "maxmemory_policy"); found != "noeviction" {
		return unfit(c, fmt.Sprintf("maxmemory-policy is %q, want noeviction", found))
	}
	version := infoLine(server.Val(), "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 5 {
		return unfit(c, fmt.Sprintf("redis_version is %q, want 5.0 or later", version))
	}
	return nil
}

func unfit(c *goredis.Client, what string) error {
	return &Fault{
		Op: "policy of " + c.Options().Addr, Kind: KindMisconf, Sentinel: admission.ErrUnavailable, Err: errors.New(what),
	}
}

func infoLine(info, name string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
