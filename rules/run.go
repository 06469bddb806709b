package rules

import (
	"context"
	"fmt"
	"time"
)

// lastGoodName is the source of a snapshot that came from the last good file.
const lastGoodName = "last-good"

// watchEvery is how often age, high-water mark and put-off breakers are looked at.
const watchEvery = time.Second

// Run applies what src emits until ctx ends, and returns nil then. If the source does not
// answer within BootWait, the last good document comes into force, if it is younger than its
// own max_stale_ms. A source that gives up (a wrong address) ends Run with its error.
func (a *Applier) Run(ctx context.Context, src Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan Update) // unbuffered: a source waits for one apply, no longer
	ended := make(chan error, 1)
	go func() {
		ended <- src.Run(ctx, func(u Update) {
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
	}()
	boot := time.NewTimer(a.cfg.BootWait)
	defer boot.Stop()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for {
		select {
		case u := <-updates:
			err := a.Apply(ctx, u, src.Name())
			if err != nil && a.Snapshot() == nil {
				a.bootFromLastGood(ctx, src.Name(), err)
			}
		case <-boot.C:
			a.bootFromLastGood(ctx, src.Name(), fmt.Errorf("no answer within %v", a.cfg.BootWait))
		case <-a.cfg.Engine.Settled():
			a.settle()
		case <-watch.C:
			a.watch(ctx)
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("rules source %s: %w", src.Name(), err)
		case <-ctx.Done():
			if err := <-ended; err != nil {
				a.cfg.Log.Warn("the rules source ended badly", "event", "rules_source_end", "error", err)
			}
			return nil
		}
	}
}

// bootFromLastGood uses the file of the last run; what is younger than max_stale is better
// than no sale at all.
func (a *Applier) bootFromLastGood(ctx context.Context, source string, why error) {
	if a.Snapshot() != nil {
		return
	}
	last := a.lastGood(source)
	if last == nil {
		return
	}
	doc, _, err := Decode([]byte(last.Document))
	if err != nil {
		a.cfg.Log.Error("the last good rules are no longer valid", "event", "rules_last_good", "error", err)
		return
	}
	age, most := a.cfg.Now().Sub(last.Confirmed), Compile(doc).Overload.MaxStale
	if age > most {
		a.cfg.Log.Error("the last good rules are too old", "event", "rules_last_good", "age", age.String(), "max_stale", most.String())
		return
	}
	kept := a.lastError.Load()
	if err := a.Apply(ctx, Update{Raw: []byte(last.Document), At: last.Confirmed}, lastGoodName); err != nil {
		return
	}
	if kept != nil {
		a.lastError.Store(kept) // why the source's own document is not in force
	}
	a.cfg.Log.Warn("started with the last good rules", "event", "rules_last_good", "version", doc.Version, "age", age.String(), "source", source, "error", why)
}

func (a *Applier) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.cfg.Engine.Settle(); err != nil {
		a.cfg.Log.Error("a changed breaker was not applied after it closed", "event", "rules_settle", "error", err)
	}
}

// highWater asks the cluster, within a time that keeps the applying loop alive.
func (a *Applier) highWater(ctx context.Context, version int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	return a.cfg.HighWater(ctx, version)
}

// watch keeps the high-water mark and the gauges.
func (a *Applier) watch(ctx context.Context) {
	now := a.cfg.Now()
	snap := a.Snapshot()
	if snap != nil && a.cfg.HighWater != nil {
		mark, err := a.highWater(ctx, snap.Version)
		a.mu.Lock()
		switch {
		case err != nil: // unknown is not behind
		case mark <= snap.Version:
			a.behind = time.Time{}
			a.stale.Store(false)
		case a.behind.IsZero():
			a.behind = now
		case now.Sub(a.behind) >= a.cfg.Grace && !a.stale.Load():
			a.stale.Store(true)
			a.cfg.Log.Error("the rules are behind the cluster's", "event", "rules_stale", "version", snap.Version, "high_water", mark)
		}
		a.mu.Unlock()
	}
	a.cfg.Metrics.watch(a.Age(now).Seconds(), a.Stale())
}
