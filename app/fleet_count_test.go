package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// count is one SKU as the test itself finds it, by reservation, in Redis and in SQL.
type count struct {
	total, remaining int64
	units            map[string]int64 // of reservations in Redis, by state
	buyers, pending  int64
	orders           int64 // in SQL, not cancelled
	users            int64 // distinct, of those orders
	sold, sqlTotal   int64 // of the SKU's row
	outcomes         int64
	apart            []string // reservations of which the two stores say different things
}

// count reads both stores with queries of its own. While a sale runs they are a moment apart.
func (f *fleet) count(ref admission.SKURef) count {
	f.t.Helper()
	ctx := f.t.Context()
	key := func(name string) string { return "inv:" + ref.Tag() + ":" + name }
	stock, err := f.stock.HGetAll(ctx, key("stock")).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	c := count{total: number(stock["total"]), remaining: number(stock["remaining"]), units: map[string]int64{}}
	reservations, err := f.stock.HGetAll(ctx, key("rsv")).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	type record struct{ state, user, order string }
	known := map[string]record{}
	for id, line := range reservations { // state|user|request|quantity|created|order|hash
		p := strings.Split(line, "|")
		if len(p) != 7 {
			f.t.Fatalf("reservation %s: %q", id, line)
		}
		c.units[p[0]] += number(p[3])
		known[id] = record{p[0], p[1], p[5]}
	}
	if c.buyers, err = f.stock.HLen(ctx, key("buyers")).Result(); err != nil {
		f.t.Fatal(err)
	}
	if c.pending, err = f.stock.ZCard(ctx, key("pending")).Result(); err != nil {
		f.t.Fatal(err)
	}

	row := f.orders.QueryRow(ctx, `SELECT total, sold, (SELECT count(*) FROM outcomes o WHERE o.activity_id = s.activity_id AND o.sku_id = s.sku_id)
		FROM skus s WHERE activity_id = $1 AND sku_id = $2`, number(ref.ActivityID), number(ref.SKUID))
	if err := row.Scan(&c.sqlTotal, &c.sold, &c.outcomes); err != nil {
		f.t.Fatal(err)
	}
	rows, err := f.orders.Query(ctx, `SELECT id, reservation_id, user_id FROM orders WHERE activity_id = $1 AND sku_id = $2 AND status <> 'CANCELLED'`,
		number(ref.ActivityID), number(ref.SKUID))
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	users := map[int64]bool{}
	for rows.Next() {
		var id, user int64
		var reservation string
		if err := rows.Scan(&id, &reservation, &user); err != nil {
			f.t.Fatal(err)
		}
		c.orders++
		users[user] = true
		want := record{"CREATED", strconv.FormatInt(user, 10), strconv.FormatInt(id, 10)}
		if got := known[reservation]; got != want {
			c.apart = append(c.apart, fmt.Sprintf("%s: Redis has %v, SQL has %v", reservation, got, want))
		}
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	c.users = int64(len(users))
	return c
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // "" is 0, and 0 is what no assertion here expects
	return n
}

func (c count) String() string {
	return fmt.Sprintf("Redis: total %d, remaining %d, units %v, buyers %d, pending %d; SQL: total %d, sold %d, orders %d of %d people, outcomes %d; apart: %d",
		c.total, c.remaining, c.units, c.buyers, c.pending, c.sqlTotal, c.sold, c.orders, c.users, c.outcomes, len(c.apart))
}

// settled reports whether nothing is on its way between the stores.
func (c count) settled() bool { return c.units["LIVE"] == 0 && c.pending == 0 && c.total > 0 }

// conserved waits until everything is settled, then demands that no unit was made or lost
// and nobody has two, and that the two stores tell the same of every order.
func (f *fleet) conserved(ref admission.SKURef, stock int64, within time.Duration) count {
	f.t.Helper()
	var c count
	took := eventually(f.t, within, "every reservation settled", func() bool { c = f.count(ref); return c.settled() })
	f.t.Logf("settled after %v: %v", took.Round(time.Millisecond), c)
	created := c.units["CREATED"]
	switch {
	case c.total != stock || c.sqlTotal != stock:
		f.t.Errorf("total: want %d in both: %v", stock, c)
	case c.remaining < 0 || c.remaining+created != stock:
		f.t.Errorf("remaining + created: want %d: %v", stock, c)
	case c.sold > stock || c.orders != c.sold || c.orders != created:
		f.t.Errorf("as many orders as units created and sold: %v", c)
	case c.users != c.orders || c.buyers != c.orders:
		f.t.Errorf("one order a person: %v", c)
	case len(c.apart) > 0:
		f.t.Errorf("the stores disagree: %v: %v", c, c.apart)
	}
	return c
}
