package demo

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/client"
)

// hostile is the evening of somebody who tries to cheat. What needs a real ticket is tried by those whose turn
// comes; the others try it with what they have.
func (s *shop) hostile(ctx context.Context, p *person, intended time.Time) {
	switch p.kind {
	case Forger:
		s.afterOpening(ctx, p)
		s.forge(ctx, p)
	case Thief:
		s.afterOpening(ctx, p)
		s.steal(ctx, p)
	case WrongPath:
		s.afterOpening(ctx, p)
		s.wrongPath(ctx, p)
	case Hammer:
		s.afterOpening(ctx, p)
		s.hammer(ctx, p)
	case Replayer:
		s.replay(ctx, p, intended)
	case Twins:
		s.twins(ctx, p, intended)
	case Tabs:
		s.tabs(ctx, p, intended)
	case Tamperer:
		s.tamper(ctx, p, intended)
	case Honest:
		panic("demo: an honest person sent to cheat")
	}
}

// afterOpening waits until some moment of the first three seconds of the sale.
func (s *shop) afterOpening(ctx context.Context, p *person) {
	pause(ctx, time.Until(s.opens)+time.Duration(p.rand.IntN(3000))*time.Millisecond)
}

// stolen is a few real tickets of other people.
type stolen struct {
	mu   sync.Mutex
	loot []client.Ticket // guarded by mu; at most maxLoot, the newest replace the oldest
	next int             // guarded by mu
	some chan struct{}   // closed with the first
}

const maxLoot = 64

func newStolen() *stolen { return &stolen{some: make(chan struct{})} }

func (s *stolen) put(t client.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loot) < maxLoot {
		s.loot = append(s.loot, t)
	} else {
		s.loot[s.next%maxLoot] = t
	}
	if s.next++; s.next == 1 {
		close(s.some)
	}
}

// take waits for loot, not for ever: it may be that nobody gets a ticket.
func (s *stolen) take(ctx context.Context, n int) (client.Ticket, bool) {
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-s.some:
	case <-timer.C:
		return client.Ticket{}, false
	case <-ctx.Done():
		return client.Ticket{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loot[n%len(s.loot)], true
}

func requestID(p *person) string {
	return fmt.Sprintf("demo_%016x%08x", p.rand.Uint64(), p.rand.Uint32())
}

// try sends one wrong submit that must not be admitted.
func (s *shop) try(ctx context.Context, p *person, a client.Attempt) {
	s.ledger.attempt(p.kind, s.attack.Attempt(ctx, p.Person, a), true)
}

// body is the right body for a request_id.
func (s *shop) body(requestID string) []byte {
	b, _ := client.SubmitBody(client.Purchase{ActivityID: s.sale.ID, SKUID: s.skuID, Ticket: client.Ticket{RequestID: requestID}}) // strings and a number always encode
	return b
}

// forge sends tickets that nobody signed: one made up, one real in everything but a bit of its signature.
func (s *shop) forge(ctx context.Context, p *person) {
	id := requestID(p)
	b64 := base64.RawURLEncoding.EncodeToString
	claims, _ := json.Marshal(map[string]any{"version": 1, "activity_id": s.sale.ID, "sku_id": s.skuID, "user_id": p.UserID, "nonce": "n_" + id})
	signature := make([]byte, 32)
	for i := range signature {
		signature[i] = byte(p.rand.Uint32())
	}
	made := b64([]byte(`{"alg":"HS256","kid":"ticket.keys","typ":"seckill-ticket"}`)) + "." + b64(claims) + "." + b64(signature)
	s.try(ctx, p, client.Attempt{PathID: s.sale.PathID, SKUID: s.skuID, Ticket: made, RequestID: id, Body: s.body(id)})
	if t, ok := s.stolen.take(ctx, p.rand.IntN(maxLoot)); ok {
		at := strings.LastIndexByte(t.Ticket, '.') + 1 + p.rand.IntN(30)
		bent := []byte(t.Ticket)
		if bent[at] == 'A' {
			bent[at] = 'B'
		} else {
			bent[at] = 'A'
		}
		s.try(ctx, p, client.Attempt{PathID: s.sale.PathID, SKUID: s.skuID, Ticket: string(bent), RequestID: t.RequestID, Body: s.body(t.RequestID)})
	}
}

// steal uses somebody else's ticket, with their request_id and with an own one.
func (s *shop) steal(ctx context.Context, p *person) {
	t, ok := s.stolen.take(ctx, p.rand.IntN(maxLoot))
	if !ok {
		return
	}
	for _, id := range []string{t.RequestID, requestID(p)} {
		s.try(ctx, p, client.Attempt{PathID: t.PathID, SKUID: s.skuID, Ticket: t.Ticket, RequestID: id, Body: s.body(id)})
	}
}

// wrongPath guesses a path, and a SKU of the right one.
func (s *shop) wrongPath(ctx context.Context, p *person) {
	id := requestID(p)
	s.try(ctx, p, client.Attempt{PathID: "p_guessed0001", SKUID: s.skuID, RequestID: id, Body: s.body(id)})
	s.try(ctx, p, client.Attempt{PathID: s.sale.PathID, SKUID: "1", RequestID: id, Body: s.body(id)})
}

// hammer submits without a ticket again and again, deaf to Retry-After.
func (s *shop) hammer(ctx context.Context, p *person) {
	id := requestID(p)
	for range 10 {
		s.try(ctx, p, client.Attempt{PathID: s.sale.PathID, SKUID: s.skuID, RequestID: id, Body: s.body(id)})
		pause(ctx, 20*time.Millisecond)
	}
}

// turn waits in line like everybody and returns a ticket; false: it never came.
func (s *shop) turn(ctx context.Context, p *person, intended time.Time) (client.Place, client.Ticket, bool) {
	place, err := s.door.JoinAt(ctx, p.Person, s.sale.ID, intended)
	if err != nil {
		s.ledger.ended(p, client.Result{Ending: client.Lost}, err)
		return place, client.Ticket{}, false
	}
	s.milestone(client.Joined)
	for range 10 {
		if place, err = s.client.WaitForTurn(ctx, p.Person, s.sale, place); err != nil {
			break
		}
		var t client.Ticket
		if t, err = s.client.Ticket(ctx, p.Person, s.sale.ID, s.skuID, place.Pass); err == nil {
			s.milestone(client.Released)
			s.milestone(client.Ticketed)
			return place, t, true
		}
		var refused *client.Refused
		if !errors.As(err, &refused) || refused.Answer.Code != client.CodeQueueWaiting {
			break
		}
		if refused.Answer.Rank != nil {
			place.Rank = refused.Answer.Rank
		}
		pause(ctx, time.Duration(500+p.rand.IntN(1000))*time.Millisecond)
	}
	r := client.Result{Ending: client.Lost}
	var refused *client.Refused
	if errors.Is(err, client.ErrSoldOut) || errors.As(err, &refused) && refused.Answer.Code == client.CodeSoldOut {
		r.Ending, err = client.SoldOut, nil
	}
	s.ledger.ended(p, r, err)
	return place, client.Ticket{}, false
}

// finish polls what the person's request came to.
func (s *shop) finish(ctx context.Context, p *person, requestID string) {
	a, err := s.client.Poll(ctx, p.Person, s.sale.ID, s.skuID, requestID, client.Answer{})
	var refused *client.Refused
	r := client.Result{Ending: client.Lost, Answer: a}
	switch {
	case errors.As(err, &refused): // NOT_FOUND: nothing was reserved
		r.Ending, err = client.Denied, nil
	case err == nil && a.Status == client.StatusFailed:
		r.Ending = client.Failed
	case err == nil:
		r.Ending = client.Ordered
	}
	s.ledger.ended(p, r, err)
}

// replay buys like everybody, then uses the same ticket for a second request.
func (s *shop) replay(ctx context.Context, p *person, intended time.Time) {
	r, err := s.buy(ctx, p, intended)
	s.ledger.ended(p, r, err)
	if r.Ticket.Ticket == "" || ctx.Err() != nil {
		return
	}
	id := requestID(p)
	s.try(ctx, p, client.Attempt{PathID: r.Ticket.PathID, SKUID: s.skuID, Ticket: r.Ticket.Ticket, RequestID: id, Body: s.body(id)})
}

// twins sends the same submit twice in the same moment: one reservation, one 202.
func (s *shop) twins(ctx context.Context, p *person, intended time.Time) {
	_, t, ok := s.turn(ctx, p, intended)
	if !ok {
		return
	}
	a := client.Attempt{PathID: t.PathID, SKUID: s.skuID, Ticket: t.Ticket, RequestID: t.RequestID, Body: s.body(t.RequestID)}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { s.ledger.attempt(p.kind, s.attack.Attempt(ctx, p.Person, a), false) })
	}
	both.Wait()
	s.finish(ctx, p, t.RequestID)
}

// tabs joins from a second device too: one place, one nonce, one request_id, and one purchase.
func (s *shop) tabs(ctx context.Context, p *person, intended time.Time) {
	place, t, ok := s.turn(ctx, p, intended)
	if !ok {
		return
	}
	other := p.Person
	other.Device += "-2"
	second, err := s.client.Join(ctx, other, s.sale.ID)
	if err == nil && second.JoinedMS != place.JoinedMS {
		s.ledger.violate("one place per person, whatever the tabs and devices", "user %s joined at %d and at %d", p.UserID, place.JoinedMS, second.JoinedMS)
	}
	var t2 client.Ticket
	if err == nil {
		t2, err = s.client.Ticket(ctx, other, s.sale.ID, s.skuID, second.Pass)
	}
	if err == nil {
		if t2.Nonce != t.Nonce || t2.RequestID != t.RequestID {
			s.ledger.violate("one nonce and request_id per person, whatever the tabs and devices", "user %s: %s/%s and %s/%s", p.UserID, t.Nonce, t.RequestID, t2.Nonce, t2.RequestID)
		}
		a := client.Attempt{PathID: t2.PathID, SKUID: s.skuID, Ticket: t2.Ticket, RequestID: t2.RequestID, Body: s.body(t2.RequestID)}
		s.ledger.attempt(p.kind, s.attack.Attempt(ctx, other, a), false)
	}
	a := client.Attempt{PathID: t.PathID, SKUID: s.skuID, Ticket: t.Ticket, RequestID: t.RequestID, Body: s.body(t.RequestID)}
	s.ledger.attempt(p.kind, s.attack.Attempt(ctx, p.Person, a), false)
	s.finish(ctx, p, t.RequestID)
}

// tamper has a real ticket and sends bodies that say something else.
func (s *shop) tamper(ctx context.Context, p *person, intended time.Time) {
	_, t, ok := s.turn(ctx, p, intended)
	if !ok {
		return
	}
	good := string(s.body(t.RequestID))
	for _, change := range [][2]string{
		{`"quantity":1`, `"quantity":2`},
		{`"quantity":1`, `"quantity":1,"quantity":1`},
		{`"quantity":1`, `"quantity":1,"price":"0.01"`},
		{t.RequestID, requestID(p)},
	} {
		s.try(ctx, p, client.Attempt{PathID: t.PathID, SKUID: s.skuID, Ticket: t.Ticket, RequestID: t.RequestID, Body: []byte(strings.Replace(good, change[0], change[1], 1))})
	}
	s.ledger.ended(p, client.Result{Ending: client.Left}, nil)
}
