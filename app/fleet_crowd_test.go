package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/session"
)

// The activity of tests that bring their own people.
const (
	crowdActivity = "77001"
	crowdSKU      = "88001"
)

var crowdRef = admission.SKURef{ActivityID: crowdActivity, SKUID: crowdSKU}

// sell publishes an activity that opens in two seconds, by the command, and waits until the
// instance shows it.
func (f *fleet) sell(stock int, on *instance) {
	f.t.Helper()
	opens := time.Now().Add(2 * time.Second).UTC().Truncate(time.Millisecond)
	document, err := json.Marshal(map[string]any{
		"activity_id": crowdActivity, "activity_version": 1, "name": "A crowd's sale",
		"opens_at": opens.Format(time.RFC3339Nano), "closes_at": opens.Add(10 * time.Minute).Format(time.RFC3339Nano),
		"skus": []any{map[string]any{"sku_id": crowdSKU, "name": "Unit", "stock": stock, "limit_per_user": 1,
			"price": map[string]string{"amount": "9.90", "currency": "CNY"}}},
		"fairness": map[string]string{"mode": "fifo"}, "max_attempts": 1, "pay_within": "15m",
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.want(0, "activity", "publish", f.file("activity.json", string(document)), "--admin", on.ready.Admin)
	eventually(f.t, patience, "the activity shown", func() bool {
		status, _ := on.get(on.ready.Public, "/v1/activities/"+crowdActivity, "")
		return status == http.StatusOK
	})
}

// crowd makes people with sessions, and a client of those instances for them.
func (f *fleet) crowd(people int, at ...*instance) (*client.Client, []client.Person) {
	f.t.Helper()
	set, err := keys.Load(filepath.Clean(f.settings["session.keys"]))
	if err != nil {
		f.t.Fatal(err)
	}
	var bases []string
	for _, i := range at {
		bases = append(bases, "http://"+i.ready.Public)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	f.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{Bases: bases, HTTP: &http.Client{Transport: transport}, Budget: client.NewBudget(1, 1000)}) // a busy machine sheds
	if err != nil {
		f.t.Fatal(err)
	}
	out := make([]client.Person, people)
	for n := range out {
		p := client.Person{UserID: strconv.Itoa(7_700_000 + n), Device: fmt.Sprintf("device-%016d", n), Address: fmt.Sprintf("10.1.%d.%d", n/200, n%200+1)}
		if p.Session, err = session.Mint(set.First(), session.MintClaims{UserID: p.UserID}, time.Hour, time.Now().Add(-5*time.Second)); err != nil {
			f.t.Fatal(err)
		}
		out[n] = p
	}
	return c, out
}

// turns brings everybody to where they hold a ticket: joined, waited for, exchanged.
func turns(t *testing.T, c *client.Client, people []client.Person) []client.Purchase {
	t.Helper()
	a, err := c.Activity(t.Context(), crowdActivity)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]client.Purchase, len(people))
	var all errgroup.Group
	for n, p := range people {
		all.Go(func() error {
			place, err := c.Join(t.Context(), p, a.ID)
			if err != nil {
				return err
			}
			if place, err = c.WaitForTurn(t.Context(), p, a, place); err != nil {
				return err
			}
			ticket, err := c.Ticket(t.Context(), p, a.ID, crowdSKU, place.Pass)
			out[n] = client.Purchase{ActivityID: a.ID, SKUID: crowdSKU, Ticket: ticket}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	return out
}
