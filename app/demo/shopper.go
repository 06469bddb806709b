package demo

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-io/sluice/app/client"
)

// shop is what a person finds when they come: the sale, the way to it, and who writes down what happens.
type shop struct {
	client *client.Client
	door   *client.Client // for coming in: the crowd at the door must not block those whose turn it is
	attack *client.Client // for hostile submits
	ledger *ledger
	sale   client.Activity
	skuID  string
	sign   func(userID string, now time.Time) (string, error) // nil: the development sign-in
	opens  time.Time                                          // by this machine's clock
	stolen *stolen
}

// live is one person's evening. It returns when they have a result, left, or ctx ended.
func (s *shop) live(ctx context.Context, p *person, intended time.Time) {
	if p.kind != Honest {
		s.ledger.came(p.kind)
	}
	var err error
	if s.sign != nil {
		p.Session, err = s.sign(p.UserID, time.Now())
	} else {
		p.Session, err = s.door.Session(ctx, p.Person)
	}
	if err != nil {
		s.ledger.ended(p, client.Result{Ending: client.Lost}, err)
		return
	}
	if p.kind != Honest {
		s.hostile(ctx, p, intended)
		return
	}
	r, err := s.buy(ctx, p, intended)
	s.ledger.ended(p, r, err)
}

// buy joins at the intended moment and goes the whole way.
func (s *shop) buy(ctx context.Context, p *person, intended time.Time) (client.Result, error) {
	place, err := s.door.JoinAt(ctx, p.Person, s.sale.ID, intended)
	if err != nil && !errors.Is(err, client.ErrGivenUp) { // who was turned away comes again
		return client.Result{Ending: client.Lost}, err
	}
	return s.client.Buy(ctx, p.Person, s.sale, s.skuID, place, func(m client.Milestone) bool {
		s.milestone(m)
		if m == client.Released || m == client.Ticketed {
			s.think(ctx, p) // people read before they press
		}
		return m != p.leave
	})
}

func (s *shop) milestone(m client.Milestone) {
	switch m {
	case client.Joined:
		s.ledger.joined.Add(1)
	case client.Released:
		s.ledger.released.Add(1)
	case client.Ticketed:
		s.ledger.ticketed.Add(1)
	case client.Reserved, client.Finished: // the ledger counts them from the answers, which others give too
	}
}

// think takes 0.2..2 s.
func (s *shop) think(ctx context.Context, p *person) {
	pause(ctx, 200*time.Millisecond+time.Duration(p.rand.IntN(1800))*time.Millisecond)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
