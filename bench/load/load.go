// Package load makes open-loop load: requests start when a schedule says so, not when the one before has
// ended, and latency counts from that intended moment. A service that stalls is therefore charged for everyone
// who had to wait, which a closed loop forgets (coordinated omission).
//
// In flight is bounded: when the bound is reached, later requests start late, and their latency says so.
package load

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Schedule says when request i, from 0, is meant to start, from the beginning of the run. It never goes back.
type Schedule func(i int) time.Duration

// Constant is perSecond requests a second, evenly spread. perSecond must be above 0.
func Constant(perSecond float64) Schedule {
	return func(i int) time.Duration { return time.Duration(float64(i) / perSecond * float64(time.Second)) }
}

// Then is the first n requests of a schedule and, from the moment after, those of another.
func Then(n int, first Schedule, after time.Duration, next Schedule) Schedule {
	return func(i int) time.Duration {
		if i < n {
			return first(i)
		}
		return max(first(n-1), after) + next(i-n)
	}
}

// Shot is one request of a run.
type Shot struct {
	I        int
	Intended time.Time
}

// Config is one run.
type Config struct {
	Requests    int
	Schedule    Schedule
	MaxInFlight int // goroutines at once, above 0
}

// Late is what a run says about itself.
type Late struct {
	Started int
	Worst   time.Duration // the latest start behind its intended moment: the generator's own limit
}

// Run starts do for every shot in its own goroutine at its intended moment and returns when all have ended.
// When ctx ends no more are started.
func Run(ctx context.Context, c Config, do func(ctx context.Context, s Shot)) (Late, error) {
	if c.Requests < 0 || c.Schedule == nil || c.MaxInFlight <= 0 {
		return Late{}, errors.New("load: a run needs requests, a schedule and a bound in flight")
	}
	var (
		late  Late
		all   sync.WaitGroup
		place = make(chan struct{}, c.MaxInFlight)
		begin = time.Now()
		timer = time.NewTimer(0)
	)
	defer timer.Stop()
	defer all.Wait()
	<-timer.C
	for i := range c.Requests {
		shot := Shot{I: i, Intended: begin.Add(c.Schedule(i))}
		if wait := time.Until(shot.Intended); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return late, nil
			case <-timer.C:
			}
		}
		select {
		case <-ctx.Done():
			return late, nil
		case place <- struct{}{}:
		}
		late.Started++
		late.Worst = max(late.Worst, time.Since(shot.Intended))
		all.Go(func() {
			defer func() { <-place }()
			do(ctx, shot)
		})
	}
	return late, nil
}
