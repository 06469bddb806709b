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

// StockOptions complete what a reservation's arguments do not say.
type StockOptions struct {
	// RecordTTL is how long past an activity's end an effect keeps a request's record;
	// default 24 h. SQL keeps it for longer.
	RecordTTL time.Duration
	// Crossed is told when remaining crosses zero, either way: an event to publish, off
	// the path. It must not block. nil: nobody is told, and instances learn by snapshot.
	Crossed func(admission.Event)
}

func (o StockOptions) withDefaults() StockOptions {
	if o.RecordTTL == 0 {
		o.RecordTTL = 24 * time.Hour
	}
	if o.Crossed == nil {
		o.Crossed = func(admission.Event) {}
	}
	return o
}

// Stock implements admission.Stock: the reservations of units, in Redis. It holds no
// state of its own, so any number of processes may use one store. The rules are those
// of lua/reserve.lua and lua/effect.lua.
type Stock struct {
	client  goredis.UniversalClient
	options StockOptions
	scripts struct{ warm, reserve, effect, snapshot, closeSKU, mend, reopenSKU *Script }
}

var _ admission.Stock = (*Stock)(nil)

// NewStock uses a client that Open made.
func NewStock(c goredis.UniversalClient, o StockOptions) *Stock {
	s := &Stock{client: c, options: o.withDefaults()}
	s.scripts.warm = NewScript("warm")
	s.scripts.reserve = NewScript("reserve")
	s.scripts.effect = NewScript("effect")
	s.scripts.snapshot = NewScript("snapshot")
	s.scripts.closeSKU = NewScript("close_sku")
	s.scripts.mend = NewScript("mend_reservation")
	s.scripts.reopenSKU = NewScript("reopen_sku")
	return s
}

// stockKeys are the names of one SKU's keys: all in one slot.
type stockKeys struct{ tag string }

func keysOf(r admission.SKURef) stockKeys { return stockKeys{r.Tag()} }

func (k stockKeys) stock() string    { return "inv:" + k.tag + ":stock" }
func (k stockKeys) buyers() string   { return "inv:" + k.tag + ":buyers" }
func (k stockKeys) rsv() string      { return "inv:" + k.tag + ":rsv" }
func (k stockKeys) pending() string  { return "inv:" + k.tag + ":pending" }
func (k stockKeys) log() string      { return "inv:" + k.tag + ":log" }
func (k stockKeys) attempts() string { return "inv:" + k.tag + ":attempts" }
func (k stockKeys) replica() string  { return "inv:" + k.tag + ":replica" }
func (k stockKeys) soldOut() string  { return "sec:soldout:" + k.tag }
func (k stockKeys) request(user, request string) string {
	return "inv:" + k.tag + ":req:" + user + ":" + request
}

// all is KEYS of reserve and effect.
func (k stockKeys) all(user, request string) []string {
	return []string{
		k.stock(), k.buyers(), k.request(user, request), k.rsv(), k.pending(), k.log(), k.attempts(), k.soldOut(),
	}
}

// Warm implements admission.Stock. A version greater than the stored one moves version
// and times; an older or equal one changes nothing.
func (s *Stock) Warm(ctx context.Context, spec admission.StockSpec) (created bool, err error) {
	k := keysOf(spec.Ref)
	values, err := s.scripts.warm.Run(ctx, s.client, []string{k.stock(), k.soldOut(), k.rsv()}, specArgs(spec)...)
	if err != nil {
		return false, err
	}
	f := fields{op: "warm", left: values}
	code := f.int()
	if code == -1 {
		total := f.int()
		if err := f.end(); err != nil {
			return false, err
		}
		return false, fmt.Errorf("warm %s: stock of %d units exists, not %d: %w", k.tag, total, spec.Total, admission.ErrConflict)
	}
	return code == 1, f.end()
}

func specArgs(spec admission.StockSpec) []any {
	return []any{spec.Version, spec.Total, spec.OpensAt.UnixMilli(), spec.ClosesAt.UnixMilli()}
}

// Reserve implements admission.Stock in one round trip.
func (s *Stock) Reserve(ctx context.Context, a admission.ReserveArgs) (admission.ReserveResult, error) {
	if err := plain(a.UserID, a.RequestID, a.ReservationID, a.BodyHash); err != nil {
		return admission.ReserveResult{}, Classify("reserve", err)
	}
	c := s.ReserveCall(a)
	values, err := c.Script.Run(ctx, s.client, c.Keys, c.Args...)
	if err != nil {
		return admission.ReserveResult{}, err
	}
	return s.readReserve(a, values)
}

// ReserveCall is the script call of Reserve, for who sends many in a pipeline and reads no
// more than the first word of a reply.
func (s *Stock) ReserveCall(a admission.ReserveArgs) Call {
	return Call{
		Script: s.scripts.reserve,
		Keys:   keysOf(a.Ref).all(a.UserID, a.RequestID),
		Args: []any{
			a.Version, a.UserID, a.RequestID, a.ReservationID, a.BodyHash,
			a.Quantity, a.MaxAttempts, a.SendGrace.Milliseconds(), a.RecordTTL.Milliseconds(),
		},
	}
}

func (s *Stock) readReserve(a admission.ReserveArgs, values []any) (admission.ReserveResult, error) {
	var r admission.ReserveResult
	f := fields{op: "reserve", left: values}
	switch word := f.string(); word {
	case "RESERVED":
		r.Code = admission.Reserved
		r.Record = admission.RequestRecord{
			RequestID: a.RequestID, BodyHash: a.BodyHash, ReservationID: a.ReservationID, Outcome: admission.PollQueued,
		}
		if len(f.left) == 0 {
			break
		}
		if mark := f.mark(); f.err == nil { // nothing is left since
			s.options.Crossed(crossing(a.Ref, mark, admission.EventSoldOut))
		}
	case "SAME":
		r.Code, r.Record = admission.ReserveSame, f.record()
	case "HOLDER":
		r.Code, r.Record = admission.ReserveHolder, f.record()
	case "SOLD_OUT":
		r.Code = admission.ReserveSoldOut
		remaining := f.int()
		if mark := f.mark(); remaining <= 0 {
			r.Mark = mark
		}
	default:
		code, ok := reserveWords[word]
		if !ok {
			return admission.ReserveResult{}, wrongShape("reserve", word)
		}
		r.Code = code
		if code == admission.ReserveClosed {
			f.string() // state or run_id: for people who run the script by hand
		}
	}
	if err := f.end(); err != nil {
		return admission.ReserveResult{}, err
	}
	return r, nil
}

var reserveWords = map[string]admission.ReserveCode{
	"BODY_CONFLICT": admission.ReserveBodyConflict, "MISSING": admission.ReserveMissing,
	"NOT_OPEN": admission.ReserveNotOpen, "ENDED": admission.ReserveEnded,
	"VERSION": admission.ReserveVersion, "CLOSED": admission.ReserveClosed,
}

// codeOutcomes reads a record's code as its owner polls it.
var codeOutcomes = map[string]admission.Outcome{
	"SECKILL_QUEUED": admission.PollQueued, "ORDER_CREATED": admission.PollOrderCreated,
	"ORDER_PAID": admission.PollOrderPaid, "ORDER_CANCELLED": admission.PollOrderCancelled,
	"NO_CAPACITY": admission.PollNoCapacity, "DUPLICATE": admission.PollDuplicate,
}

// record reads request_id, body_hash, reservation_id, order_id, code. An empty code is a
// reservation that only SQL knows.
func (f *fields) record() admission.RequestRecord {
	r := admission.RequestRecord{
		RequestID: f.string(), BodyHash: f.string(), ReservationID: f.string(), OrderID: f.string(),
	}
	code := f.string()
	outcome, ok := codeOutcomes[code]
	switch {
	case ok:
		r.Outcome = outcome
	case code == "":
		r.Outcome = admission.PollQueued
	case f.err == nil:
		f.err = wrongShape(f.op, code)
	}
	return r
}

// mark reads incarnation, version, epoch, log length.
func (f *fields) mark() admission.Mark {
	return admission.Mark{Incarnation: f.int(), ActivityVersion: f.int(), Epoch: f.int(), LogLength: f.int()}
}

// crossing is the event of one epoch. Its id is derived, so that whoever repeats it
// repeats the id.
func crossing(ref admission.SKURef, m admission.Mark, kind string) admission.Event {
	return admission.Event{
		SchemaVersion: 1,
		MessageID:     fmt.Sprintf("msg_%s_%s_%d_%d", ref.ActivityID, ref.SKUID, m.Incarnation, m.Epoch),
		Type:          kind, ActivityID: ref.ActivityID, SKUID: ref.SKUID,
		Version: m.ActivityVersion, Incarnation: m.Incarnation, Epoch: m.Epoch,
	}
}

// applyBatch bounds one pipeline of effects.
const applyBatch = 200

// Apply implements admission.Stock.
func (s *Stock) Apply(ctx context.Context, verdicts []admission.Verdict) error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for len(verdicts) > 0 {
		n := min(len(verdicts), applyBatch)
		batch := make([]admission.Verdict, 0, n)
		calls := make([]Call, 0, n)
		for _, v := range verdicts[:n] {
			c, err := s.effect(v)
			if err != nil {
				keep(err)
				continue
			}
			batch, calls = append(batch, v), append(calls, c)
		}
		for i, r := range RunAll(ctx, s.client, calls) {
			if err := s.readEffect(batch[i], r); err != nil {
				keep(fmt.Errorf("effect of %s: %w", batch[i].ReservationID, err))
			}
		}
		verdicts = verdicts[n:]
	}
	return first
}

func (s *Stock) effect(v admission.Verdict) (Call, error) {
	state, ok := stateOf(v)
	if !ok {
		return Call{}, Classify("effect", badArgument(fmt.Sprintf("verdict %q with order status %q", v.Outcome, v.OrderStatus)))
	}
	if err := plain(v.ReservationID, v.UserID, v.RequestID, v.BodyHash, v.OrderID, v.ExistingReservationID); err != nil {
		return Call{}, Classify("effect", err)
	}
	rebuy := 0
	if v.RebuyAfterCancel {
		rebuy = 1
	}
	return Call{
		Script: s.scripts.effect,
		Keys:   keysOf(v.Ref).all(v.UserID, v.RequestID),
		Args: []any{
			v.ReservationID, v.UserID, v.RequestID, v.BodyHash, v.Quantity, v.CreatedAt.UnixMilli(),
			string(state), v.OrderID, v.ExistingReservationID, rebuy, v.ClosesAt.UnixMilli(), s.options.RecordTTL.Milliseconds(),
		},
	}, nil
}

// stateOf is where a verdict moves its reservation: an order that was cancelled since is RETURNED.
func stateOf(v admission.Verdict) (admission.ReservationState, bool) {
	switch v.Outcome {
	case admission.VerdictDuplicate:
		return admission.Duplicate, true
	case admission.VerdictNoCapacity:
		return admission.NoCapacity, true
	case admission.VerdictCreated:
		switch v.OrderStatus {
		case admission.OrderCreated:
			return admission.Created, true
		case admission.OrderPaid:
			return admission.Paid, true
		case admission.OrderCancelled:
			return admission.Returned, true
		}
	}
	return "", false
}

func (s *Stock) readEffect(v admission.Verdict, r Reply) error {
	if r.Err != nil {
		return r.Err
	}
	if len(r.Values) == 1 && r.Values[0] == "MISSING" {
		return missing("effect", v.Ref)
	}
	f := fields{op: "effect", left: r.Values}
	f.int() // whether it moved: an effect that finds itself done is done
	crossed := f.int()
	mark := f.mark()
	if err := f.end(); err != nil {
		return err
	}
	switch crossed {
	case 1:
		s.options.Crossed(crossing(v.Ref, mark, admission.EventSoldOut))
	case -1:
		s.options.Crossed(crossing(v.Ref, mark, admission.EventReopened))
	}
	return nil
}

// missing: the stock key is gone. That is never sold out; a restore makes it anew.
func missing(op string, ref admission.SKURef) error {
	return &Fault{Op: op, Kind: KindMissing, Sentinel: admission.ErrUnavailable, Err: errors.New("no stock of " + ref.Tag())}
}

// pendingBatch bounds one ZADD.
const pendingBatch = 500

// MarkSent implements admission.Stock. A reservation that has been decided meanwhile is
// no longer pending and stays so.
func (s *Stock) MarkSent(ctx context.Context, ref admission.SKURef, ids []string, due time.Time) error {
	for len(ids) > 0 {
		n := min(len(ids), pendingBatch)
		args := make([]any, 0, 3+2*n)
		args = append(args, "zadd", keysOf(ref).pending(), "xx")
		for _, id := range ids[:n] {
			args = append(args, due.UnixMilli(), id)
		}
		if err := ctx.Err(); err != nil {
			return notSent("mark sent", err)
		}
		if err := s.client.Process(ctx, &call{goredis.NewCmd(ctx, args...)}); err != nil {
			return Classify("mark sent", err)
		}
		ids = ids[n:]
	}
	return nil
}

// Postpone implements admission.Stock.
func (s *Stock) Postpone(ctx context.Context, ref admission.SKURef, id string, due time.Time) error {
	return s.MarkSent(ctx, ref, []string{id}, due)
}

// Due implements admission.Stock in two round trips.
func (s *Stock) Due(ctx context.Context, ref admission.SKURef, now time.Time, limit int) ([]admission.Reservation, error) {
	if limit < 1 {
		return nil, nil
	}
	k := keysOf(ref)
	ids, err := s.client.ZRangeByScore(ctx, k.pending(), &goredis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: int64(limit),
	}).Result()
	if err != nil {
		return nil, Classify("due", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	records, err := s.client.HMGet(ctx, k.rsv(), ids...).Result()
	if err != nil {
		return nil, Classify("due", err)
	}
	if len(records) != len(ids) {
		return nil, wrongShape("due", records)
	}
	due := make([]admission.Reservation, 0, len(ids))
	for i, v := range records {
		text, _ := v.(string)
		r, err := parseReservation(ref, ids[i], text)
		if err != nil {
			r = admission.Reservation{ID: ids[i], Ref: ref, Unreadable: true}
		}
		if r.State == admission.Live || r.Unreadable { // else decided between the two reads: its effect is what it waited for
			due = append(due, r)
		}
	}
	return due, nil
}

// parseReservation reads state|user|request|quantity|created_ms|order_id|body_hash.
func parseReservation(ref admission.SKURef, id, text string) (admission.Reservation, error) {
	p := strings.Split(text, "|")
	if len(p) != 7 {
		return admission.Reservation{}, wrongShape("reservation "+id, text)
	}
	quantity, err1 := strconv.ParseInt(p[3], 10, 64)
	created, err2 := strconv.ParseInt(p[4], 10, 64)
	if err1 != nil || err2 != nil {
		return admission.Reservation{}, wrongShape("reservation "+id, text)
	}
	return admission.Reservation{
		ID: id, Ref: ref, State: admission.ReservationState(p[0]), UserID: p[1], RequestID: p[2],
		Quantity: quantity, CreatedAt: time.UnixMilli(created), OrderID: p[5], BodyHash: p[6],
	}, nil
}

// plain reports an id that would break a compact record apart. Ids are checked where they
// enter; this is the last line.
func plain(ids ...string) error {
	for _, id := range ids {
		if len(id) > maxFieldLen || strings.ContainsRune(id, '|') {
			return badArgument(fmt.Sprintf("%.80q holds '|' or is too long", id))
		}
	}
	return nil
}

// maxFieldLen bounds one field of a record, bytes: twice the longest id or hash.
const maxFieldLen = 256

// badArgument is a refusal before anything was sent, classified like the scripts' own.
type badArgument string

func (b badArgument) Error() string { return "BADARGS " + string(b) }

// RedisError makes Classify read it like a script's BADARGS.
func (badArgument) RedisError() {}
