package order

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Budgets are the longest times of the steps of one placement. They are policy and
// may change while requests are under way.
type Budgets struct {
	Stock    time.Duration // the reserve script; 15 ms
	Queue    time.Duration // the hand-off to the queue; 25 ms
	Replicas time.Duration // the wait for replicas; 25 ms
}

// DefaultBudgets are those of 80-overload. Embedded mode takes ten times as much.
func DefaultBudgets() Budgets {
	return Budgets{Stock: 15 * time.Millisecond, Queue: 25 * time.Millisecond, Replicas: 25 * time.Millisecond}
}

// PlacerConfig is how a Placer works.
type PlacerConfig struct {
	// ReservationID derives a reservation's id, so that one request can never hold two.
	ReservationID func(ref admission.SKURef, userID, requestID string) string
	Budgets       func() Budgets // nil: DefaultBudgets
	SendGrace     time.Duration  // until recovery sends a reservation whose message was not acknowledged; default 1 s
	RecordTTL     time.Duration  // of the request record past the activity's end; default 24 h
	WaitReplicas  int            // replicas that must hold a reservation whose message was not acknowledged; 0: none
	TraceParent   func(context.Context) string

	// What a reply of the stock store tells others. Both must not block; nil is allowed.
	SoldOut func(admission.SKURef, admission.Mark) // remaining was <= 0 at this mark
	Missing func(admission.SKURef)                 // the stock key is gone: alert
}

func (c PlacerConfig) withDefaults() PlacerConfig {
	if c.Budgets == nil {
		c.Budgets = DefaultBudgets
	}
	if c.SendGrace == 0 {
		c.SendGrace = time.Second
	}
	if c.RecordTTL == 0 {
		c.RecordTTL = 24 * time.Hour
	}
	if c.TraceParent == nil {
		c.TraceParent = func(context.Context) string { return "" }
	}
	if c.SoldOut == nil {
		c.SoldOut = func(admission.SKURef, admission.Mark) {}
	}
	if c.Missing == nil {
		c.Missing = func(admission.SKURef) {}
	}
	return c
}

// Placer is the last step of a submit: reserve, send, record.
type Placer struct {
	stock   admission.Stock
	sender  *Sender
	config  PlacerConfig
	metrics *Metrics
	log     *slog.Logger
}

// NewPlacer returns a Placer; the Sender must be running for messages to be sent.
func NewPlacer(stock admission.Stock, sender *Sender, c PlacerConfig, m *Metrics, log *slog.Logger) (*Placer, error) {
	if c.ReservationID == nil {
		return nil, errors.New("placer: no derivation of reservation ids")
	}
	if c.WaitReplicas < 0 {
		return nil, fmt.Errorf("placer: wait_replicas %d: want 0 or more", c.WaitReplicas)
	}
	return &Placer{stock: stock, sender: sender, config: c.withDefaults(), metrics: m, log: log}, nil
}

// Place reserves r's units and hands the reservation to the queue. The zero Decision
// means reserved: answer Queued. r.Record then holds the reservation; for Replayed and
// AlreadyPurchased it holds what the user has. Every fault is DependencyUnavailable,
// never sold out.
//
// The request's budget is ctx's deadline. Once the stock has answered, nothing here
// depends on the client: what follows runs on a context of its own.
func (p *Placer) Place(ctx context.Context, r *admission.Request) admission.Decision {
	budgets := p.config.Budgets()
	args := admission.ReserveArgs{
		Ref:           r.Ref(),
		Version:       r.Activity.Version,
		UserID:        r.UserID,
		RequestID:     r.RequestID,
		ReservationID: p.config.ReservationID(r.Ref(), r.UserID, r.RequestID),
		BodyHash:      r.BodyHash,
		Quantity:      r.Quantity,
		MaxAttempts:   r.Activity.MaxAttempts,
		SendGrace:     p.config.SendGrace,
		RecordTTL:     p.config.RecordTTL,
	}
	result, err := p.reserve(ctx, args, budgets.Stock)
	if err != nil {
		p.metrics.reserve[admission.ReserveNone].Inc()
		return fault(err)
	}
	if result.Code > admission.ReserveClosed {
		result.Code = admission.ReserveNone
	}
	p.metrics.reserve[result.Code].Inc()
	if result.Code == admission.Reserved {
		r.Record = reserved(args)
		return p.handOver(ctx, r, args, budgets)
	}
	return p.refuse(r, result)
}

func (p *Placer) reserve(ctx context.Context, args admission.ReserveArgs, within time.Duration) (admission.ReserveResult, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p.stock.Reserve(ctx, args)
}

// fault says what a failed reserve means. It may have reserved: the same request_id
// then finds the reservation, and recovery sends it.
func fault(err error) admission.Decision {
	reason := admission.ReasonStockResultUnknown
	if errors.Is(err, admission.ErrUnavailable) {
		reason = admission.ReasonStockStore
	}
	return refusal(admission.DependencyUnavailable, reason, fmt.Errorf("reserve: %w", err))
}

func refusal(o admission.Outcome, reason admission.Reason, cause error) admission.Decision {
	return admission.Decision{Outcome: o, Stage: admission.StageStock, Reason: reason, Cause: cause}
}

// refuse turns a reply that reserved nothing into its outcome.
func (p *Placer) refuse(r *admission.Request, result admission.ReserveResult) admission.Decision {
	switch result.Code {
	case admission.ReserveSame:
		r.Record = result.Record
		return refusal(admission.Replayed, admission.ReasonReplayed, nil)
	case admission.ReserveBodyConflict:
		return refusal(admission.RequestIDConflict, admission.ReasonBodyConflict, nil)
	case admission.ReserveHolder:
		r.Record = result.Record
		return refusal(admission.AlreadyPurchased, admission.ReasonAlreadyPurchased, nil)
	case admission.ReserveSoldOut:
		if result.Mark == (admission.Mark{}) { // something is left: nobody else may be told so
			return refusal(admission.SoldOut, admission.ReasonStockTooFew, nil)
		}
		p.config.SoldOut(r.Ref(), result.Mark)
		return refusal(admission.SoldOut, admission.ReasonStockSoldOut, nil)
	case admission.ReserveNotOpen:
		d := refusal(admission.ActivityNotOpen, admission.ReasonNotOpen, nil)
		d.RetryAfter = max(r.Activity.OpensAt.Sub(r.Now), 0)
		return d
	case admission.ReserveEnded:
		return refusal(admission.ActivityEnded, admission.ReasonEnded, nil)
	case admission.ReserveVersion:
		return refusal(admission.TokenExpired, admission.ReasonVersion, nil)
	case admission.ReserveMissing:
		p.config.Missing(r.Ref())
		return refusal(admission.DependencyUnavailable, admission.ReasonStockMissing, errors.New("stock key is missing"))
	case admission.ReserveClosed:
		return refusal(admission.DependencyUnavailable, admission.ReasonStockClosed, nil)
	default: // a code that this version does not know
		return refusal(admission.DependencyUnavailable, admission.ReasonStockResultUnknown, fmt.Errorf("reserve code %d", result.Code))
	}
}

func reserved(a admission.ReserveArgs) admission.RequestRecord {
	return admission.RequestRecord{
		RequestID: a.RequestID, BodyHash: a.BodyHash, ReservationID: a.ReservationID, Outcome: admission.PollQueued,
	}
}

// handOver sends the reservation's message. Whatever becomes of it the reservation
// stands and recovery finishes it; only with WaitReplicas must a reservation without
// an acknowledged message first be on that many replicas.
func (p *Placer) handOver(ctx context.Context, r *admission.Request, args admission.ReserveArgs, budgets Budgets) admission.Decision {
	err := p.send(ctx, r, args, budgets.Queue)
	if err == nil || p.config.WaitReplicas == 0 {
		return admission.Decision{}
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), budgets.Replicas)
	defer cancel()
	if held := p.stock.Replicas(detached, args.Ref, p.config.WaitReplicas, budgets.Replicas); held != nil {
		d := refusal(admission.DependencyUnavailable, admission.ReasonReplicas,
			fmt.Errorf("neither sent nor replicated: %w", errors.Join(err, held)))
		d.Stage = admission.StageQueue // the stock had answered
		return d
	}
	return admission.Decision{}
}

var errNoBudget = fmt.Errorf("%w: no time left to send", admission.ErrUnavailable)

func (p *Placer) send(ctx context.Context, r *admission.Request, args admission.ReserveArgs, within time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < within {
		p.metrics.send[sendNoBudget].Inc()
		return errNoBudget
	}
	m := messageOf(admission.Reservation{
		ID: args.ReservationID, Ref: args.Ref, UserID: args.UserID, RequestID: args.RequestID,
		BodyHash: args.BodyHash, Quantity: args.Quantity, CreatedAt: r.Now,
	}, args.Version, p.config.TraceParent(ctx))
	body, err := Encode(m)
	if err != nil {
		p.log.Error("message not encoded; recovery decides the reservation",
			"event", "encode_failed", "reservation_id", args.ReservationID, "error", err)
		return err
	}
	return p.sender.Send(Message{Ref: args.Ref, Key: args.ReservationID, Body: body}, within)
}
