package conformance

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Leadership is the suite of admission.Leadership. open is called once for every
// candidate; all of them must meet on the same nodes.
func Leadership(t *testing.T, open func(t *testing.T) admission.Leadership) {
	t.Run("one leads, the other is told so", func(t *testing.T) { leadOne(t, open) })
	t.Run("trust runs from the start of the attempt", func(t *testing.T) { leadTrust(t, open(t)) })
	t.Run("a lock that ran out is not extended", func(t *testing.T) { leadLost(t, open) })
	t.Run("a race has at most one winner", func(t *testing.T) { leadRace(t, open) })
	t.Run("roles do not meet", func(t *testing.T) { leadRoles(t, open(t)) })
}

func leadOne(t *testing.T, open func(t *testing.T) admission.Leadership) {
	const ttl = time.Minute // nobody's lock runs out meanwhile
	role := fresh(t)
	one, two := open(t), open(t)
	held := mustLead(t, one, role, ttl)
	_, err := two.Acquire(t.Context(), role, ttl)
	for range 10 { // a slow machine may give no answer in time
		if !errors.Is(err, admission.ErrUnavailable) {
			break
		}
		_, err = two.Acquire(t.Context(), role, ttl)
	}
	if !errors.Is(err, admission.ErrConflict) {
		t.Errorf("second candidate: got %v, want ErrConflict", err)
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	next := mustLead(t, two, role, ttl)
	if err := held.Release(t.Context()); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("releasing a lock that another holds: got %v, want ErrConflict", err)
	}
	if err := next.Extend(t.Context()); err != nil {
		t.Errorf("the other's release must not touch the new lock: %v", err)
	}
	_ = next.Release(t.Context())
}

func leadTrust(t *testing.T, l admission.Leadership) {
	const ttl, drift = 3 * time.Second, 150 * time.Millisecond
	role := fresh(t)
	before := time.Now()
	held, err := l.Acquire(t.Context(), role, ttl)
	for range 10 { // a slow machine may give no answer in time
		if err == nil {
			break
		}
		before = time.Now()
		held, err = l.Acquire(t.Context(), role, ttl)
	}
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	after := time.Now()
	if u := held.Until(); u.Before(before.Add(ttl-drift)) || u.After(after.Add(ttl-drift)) {
		t.Errorf("until is %v after the start, want %v", u.Sub(before), ttl-drift)
	}
	was := held.Until()
	if err := held.Extend(t.Context()); err != nil || !held.Until().After(was) {
		t.Errorf("extend: %v, until moved by %v", err, held.Until().Sub(was))
	}
	_ = held.Release(t.Context())
}

func leadLost(t *testing.T, open func(t *testing.T) admission.Leadership) {
	role := fresh(t)
	held := mustLead(t, open(t), role, 400*time.Millisecond)
	candidate := open(t)
	next, err := candidate.Acquire(t.Context(), role, 5*time.Second)
	for range 10 { // a store may be late to expire a lock, never early
		if err == nil {
			break
		}
		next, err = candidate.Acquire(t.Context(), role, 5*time.Second)
	}
	if err != nil {
		t.Fatalf("the lock never ran out: %v", err)
	}
	if time.Now().Before(held.Until()) {
		t.Errorf("two leaders trust their lock at once")
	}
	err = held.Extend(t.Context())
	for range 10 { // a slow machine may give no answer in time
		if !errors.Is(err, admission.ErrUnavailable) {
			break
		}
		err = held.Extend(t.Context())
	}
	if !errors.Is(err, admission.ErrConflict) {
		t.Errorf("extending a lost lock: got %v, want ErrConflict", err)
	}
	_ = next.Release(t.Context())
}

func leadRace(t *testing.T, open func(t *testing.T) admission.Leadership) {
	role := fresh(t)
	var winners atomic.Int32
	var group sync.WaitGroup
	for range 5 {
		candidate := open(t)
		group.Go(func() {
			if _, err := candidate.Acquire(t.Context(), role, time.Minute); err == nil {
				winners.Add(1)
			}
		})
	}
	group.Wait()
	if n := winners.Load(); n > 1 {
		t.Errorf("%d leaders at once", n)
	}
}

func leadRoles(t *testing.T, l admission.Leadership) {
	one := mustLead(t, l, fresh(t), time.Minute)
	two := mustLead(t, l, fresh(t), time.Minute)
	_ = one.Release(t.Context())
	_ = two.Release(t.Context())
}

func mustLead(t *testing.T, l admission.Leadership, role string, ttl time.Duration) admission.Held {
	t.Helper()
	held, err := l.Acquire(t.Context(), role, ttl)
	for range 10 { // a slow machine may give no answer in time
		if !errors.Is(err, admission.ErrUnavailable) {
			break
		}
		held, err = l.Acquire(t.Context(), role, ttl)
	}
	if err != nil {
		t.Fatalf("acquire %s: %v", role, err)
	}
	return held
}
