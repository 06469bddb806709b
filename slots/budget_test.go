package slots

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		request, end := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		defer end()
		start := time.Now()

		b := withBudget(request, 5*time.Millisecond)
		if b.Value(key{}) != "value" || b.timed != nil {
			t.Error("a value, or the lack of a question, began the timer")
		}
		if at, ok := b.Deadline(); !ok || !at.Equal(start.Add(5*time.Millisecond)) || b.Err() != nil {
			t.Errorf("deadline %v, %v; error %v", at, ok, b.Err())
		}
		child, cancel := context.WithCancel(b)
		defer cancel()
		<-child.Done()
		if d := time.Since(start); d != 5*time.Millisecond || !errors.Is(b.Err(), context.DeadlineExceeded) || child.Err() == nil {
			t.Errorf("ended after %v with %v, its child with %v", d, b.Err(), child.Err())
		}

		b = withBudget(request, 5*time.Millisecond)
		done := b.Done()
		b.cancel()
		<-done
		b = withBudget(request, 5*time.Millisecond)
		b.cancel()
		<-b.Done() // whoever keeps it and asks late
		if !errors.Is(b.Err(), context.Canceled) {
			t.Errorf("a call that has returned: %v", b.Err())
		}

		b = withBudget(request, time.Hour)
		if at, _ := b.Deadline(); at.After(start.Add(time.Second)) {
			t.Errorf("deadline %v is after the request's", at)
		}
		end()
		<-b.Done()
		if !errors.Is(b.Err(), context.Canceled) {
			t.Errorf("a request that is over: %v", b.Err())
		}
	})
}
