package order

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Kind is what kind a difference is.
type Kind string

// The kinds.
const (
	KindState     Kind = "state"     // the reservation does not stand where its order does
	KindNoOrder   Kind = "no_order"  // the stock says that there is an order; SQL knows none
	KindNoRecord  Kind = "no_record" // SQL has a live order that the stock does not know
	KindUndecided Kind = "undecided" // a reservation in LIVE that SQL has never decided
	KindUnits     Kind = "units"     // total is not remaining + LIVE + CREATED + PAID
	KindTotal     Kind = "total"     // stock and SQL were given different totals
	KindOversold  Kind = "oversold"  // SQL sold more than there is
)

var kinds = [...]Kind{KindState, KindNoOrder, KindNoRecord, KindUndecided, KindUnits, KindTotal, KindOversold}

func kindList() string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// Difference is one disagreement between the stock and SQL.
type Difference struct {
	Ref           admission.SKURef `json:"-"`
	Kind          Kind             `json:"kind"`
	ReservationID string           `json:"reservation_id,omitempty"` // "" when it is about the SKU
	Stock         string           `json:"stock"`                    // what the stock says
	SQL           string           `json:"sql"`                      // what SQL says
	Units         int64            `json:"units,omitempty"`          // of KindUnits: what is missing; a busy SKU's count may be torn, but not twice by the same
}

func (d Difference) String() string {
	return fmt.Sprintf("%s %s %s: stock %s, SQL %s", d.Ref.Tag(), d.Kind, d.ReservationID, d.Stock, d.SQL)
}

// Compare lists how two tallies of one SKU differ, sorted. A difference may be an
// effect under way: only one that two passes see counts (Reconciler).
func Compare(ref admission.SKURef, stock admission.StockTally, sql admission.OrderTally) []Difference {
	var out []Difference
	add := func(k Kind, id, inStock, inSQL string) {
		out = append(out, Difference{Ref: ref, Kind: k, ReservationID: id, Stock: inStock, SQL: inSQL})
	}
	if !stock.Conserved() {
		add(KindUnits, "", fmt.Sprintf("total %d, remaining %d, live %d, created %d, paid %d",
			stock.Total, stock.Remaining, stock.Live, stock.Created, stock.Paid), "-")
		out[len(out)-1].Units = stock.Missing()
	}
	if stock.Total != sql.Total {
		add(KindTotal, "", fmt.Sprint(stock.Total), fmt.Sprint(sql.Total))
	}
	if sql.Sold > sql.Total {
		add(KindOversold, "", "-", fmt.Sprintf("sold %d of %d", sql.Sold, sql.Total))
	}
	for id, status := range sql.Status {
		state, known := stock.Orders[id]
		want := stateOf(status)
		switch {
		case !known && want != admission.Returned:
			add(KindNoRecord, id, "nothing", string(status))
		case known && state != want:
			add(KindState, id, string(state), string(status))
		}
	}
	for id, state := range stock.Orders {
		if _, known := sql.Status[id]; known {
			continue
		}
		switch state {
		case admission.Created, admission.Paid, admission.Returned:
			add(KindNoOrder, id, string(state), "nothing")
		case admission.Live:
			add(KindUndecided, id, string(state), "nothing")
		case admission.Duplicate, admission.NoCapacity: // verdicts without an order
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.key(), b.key()) })
	return out
}

// key is what two passes must agree on to have seen the same difference.
func (d Difference) key() string {
	if d.Kind == KindUnits {
		return fmt.Sprintf("%s %d", d.Kind, d.Units)
	}
	return string(d.Kind) + " " + d.ReservationID + " " + d.Stock + " " + d.SQL
}

// stateOf is where a reservation stands once its order's status has reached the stock.
func stateOf(s admission.OrderStatus) admission.ReservationState {
	switch s {
	case admission.OrderPaid:
		return admission.Paid
	case admission.OrderCancelled:
		return admission.Returned
	default:
		return admission.Created
	}
}

// ReconcilerConfig are the bounds of a Reconciler.
type ReconcilerConfig struct {
	ReservationTTL time.Duration // default 15 s
	Lag            time.Duration // of the queue and of one scan, on top; default 5 s
	Page           int           // verdicts of one repair write; default 500
	Remembered     int           // differences remembered of one SKU between passes; default 100,000
}

func (c ReconcilerConfig) withDefaults() ReconcilerConfig {
	if c.ReservationTTL == 0 {
		c.ReservationTTL = 15 * time.Second
	}
	if c.Lag == 0 {
		c.Lag = 5 * time.Second
	}
	if c.Page == 0 {
		c.Page = 500
	}
	if c.Remembered == 0 {
		c.Remembered = 100_000
	}
	return c
}

// Reconciler compares the stock with SQL. What differs while a message or an effect
// is under way is no fault, so a difference counts only when an earlier pass saw the
// same one at least Settle before. One goroutine uses it.
type Reconciler struct {
	stock   admission.Stock
	orders  admission.Orders
	config  ReconcilerConfig
	metrics *Metrics
	log     *slog.Logger
	seen    map[admission.SKURef]map[string]time.Time // difference -> pass that saw it first
}

// NewReconciler returns a Reconciler that has seen nothing.
func NewReconciler(s admission.Stock, o admission.Orders, c ReconcilerConfig, m *Metrics, log *slog.Logger) *Reconciler {
	return &Reconciler{
		stock: s, orders: o, config: c.withDefaults(), metrics: m, log: log,
		seen: make(map[admission.SKURef]map[string]time.Time),
	}
}

// Settle is how far apart two passes must be for the second to count: what was under
// way at the first has ended by then.
func (r *Reconciler) Settle() time.Duration { return r.config.ReservationTTL + r.config.Lag }

// Pass compares one SKU at now. lasting are the differences that a pass at least
// Settle before saw too; fresh are the others, which may be under way.
func (r *Reconciler) Pass(ctx context.Context, ref admission.SKURef, now time.Time) (lasting, fresh []Difference, err error) {
	// The stock first: an order that is committed between the two reads shows as
	// KindState or KindNoRecord now and is gone in the next pass.
	stock, err := r.stock.Tally(ctx, ref)
	if err != nil {
		return nil, nil, fmt.Errorf("tally stock of %s: %w", ref.Tag(), err)
	}
	sql, err := r.orders.Tally(ctx, ref)
	if err != nil {
		return nil, nil, fmt.Errorf("tally orders of %s: %w", ref.Tag(), err)
	}
	before, seen := r.seen[ref], make(map[string]time.Time)
	for _, d := range Compare(ref, stock, sql) {
		first, again := before[d.key()]
		if !again {
			first = now
		}
		if len(seen) < r.config.Remembered {
			seen[d.key()] = first
		}
		if again && now.Sub(first) >= r.Settle() {
			lasting = append(lasting, d)
		} else {
			fresh = append(fresh, d)
		}
	}
	r.seen[ref] = seen
	return lasting, fresh, nil
}

// Forget drops what was seen of a SKU that is no longer compared.
func (r *Reconciler) Forget(ref admission.SKURef) { delete(r.seen, ref) }

// Publish sets the gauges to the lasting differences of one round over all SKUs, and
// logs the first few.
func (r *Reconciler) Publish(lasting []Difference) {
	count := make(map[Kind]int, len(kinds))
	for i, d := range lasting {
		count[d.Kind]++
		if i < 10 {
			r.log.Error("stock and SQL differ", "event", "reconcile_difference", "kind", string(d.Kind),
				"activity_id", d.Ref.ActivityID, "sku_id", d.Ref.SKUID, "reservation_id", d.ReservationID,
				"stock", d.Stock, "sql", d.SQL)
		}
	}
	for _, k := range kinds {
		r.metrics.differences.WithLabelValues(string(k)).Set(float64(count[k]))
	}
}

// Repair applies every verdict that SQL has on the SKU, in pages: the stock moves
// towards SQL, never SQL towards the stock. It returns how many verdicts it applied.
func (r *Reconciler) Repair(ctx context.Context, ref admission.SKURef) (int, error) {
	applied, after := 0, ""
	for {
		page, err := r.orders.Verdicts(ctx, ref, after, r.config.Page)
		if err != nil {
			return applied, fmt.Errorf("verdicts of %s: %w", ref.Tag(), err)
		}
		if len(page) == 0 {
			return applied, nil
		}
		if err := r.stock.Apply(ctx, page); err != nil {
			r.metrics.applyFailed[byRepair].Inc()
			return applied, fmt.Errorf("repair %s: %w", ref.Tag(), err)
		}
		applied += len(page)
		if len(page) < r.config.Page {
			return applied, nil
		}
		after = page[len(page)-1].ReservationID
	}
}
