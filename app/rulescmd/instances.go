package rulescmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/control"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/rules"
)

// instances are the live instances as one command sees them: through the admin listener of
// one of them, else in their own table in the limiter store. Whoever cannot be asked is told
// of, and is no failure: a push needs the rules source alone.
type instances struct {
	settings Settings
	table    *control.Fleet // nil: there is none, or it is away
	away     error          // why it is
	close    func()
}

func (s Settings) instances(ctx context.Context) *instances {
	v := &instances{settings: s, close: func() {}}
	if s.Registry == nil {
		return v
	}
	store, done, err := s.Registry(ctx)
	if err != nil {
		v.away = err
		return v
	}
	v.table = &control.Fleet{Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	v.close = done
	return v
}

// status reads every live instance.
func (v *instances) status(ctx context.Context) (fleetStatus, error) {
	f, err := v.settings.fleet(ctx)
	switch {
	case err == nil || v.settings.AdminURL != "" && wrongUse(err):
		return f, err
	case v.away != nil:
		return f, exit.Code(exit.Of(err), fmt.Errorf("%w; %w", err, v.away))
	case v.table == nil:
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	t, terr := v.table.Status(ctx)
	switch {
	case terr != nil:
		return f, exit.Code(exit.Of(err), fmt.Errorf("%w; %w", err, terr))
	case len(t.Instances) == 0:
		return f, exit.Code(exit.Of(err), fmt.Errorf("%w; %w", err, errNobody))
	}
	body, err := json.Marshal(t) // the answer of an admin listener is this
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(body, &f)
}

// highWater is the greatest version that the cluster has seen; 0 where nobody tells.
func (v *instances) highWater(ctx context.Context) int64 {
	if v.table == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	mark, err := v.table.Store.HighWater(ctx, 0)
	if err != nil {
		return 0 // then an instance says so itself
	}
	return mark
}

// target is what a push wants in force: a version alone may be another document's.
type target struct {
	version      int64
	main, canary string // hashes of the bundles; canary "": there is none
}

func targetOf(b *rules.Bundle) target {
	t := target{version: b.Version, main: b.Hash()}
	if b.Canary != nil {
		t.canary = b.Canary.Bundle.Hash()
	}
	return t
}

func (t target) inCanary(i rules.Status) bool {
	return t.canary != "" && i.Version == t.version && i.Hash == t.canary
}

func (t target) runs(i rules.Status) bool {
	return i.Version == t.version && i.Hash == t.main || t.inCanary(i)
}

// preclude names an instance that would refuse the target: it runs something else that is
// not older.
func (f fleetStatus) preclude(t target) error {
	for _, i := range f.Instances {
		switch {
		case t.runs(i) || i.Version < t.version:
		case i.Version == t.version:
			return fmt.Errorf("instance %s runs version %d with other content", i.InstanceID, i.Version)
		default:
			return fmt.Errorf("instance %s runs version %d, which is above %d", i.InstanceID, i.Version, t.version)
		}
	}
	return nil
}

// acknowledgement is how the live instances took a push.
type acknowledgement struct{ running, canary, live int }

// judged counts the instances that run exactly t; refusal is the first that says no to it, or
// runs something later.
func (f fleetStatus) judged(t target) (a acknowledgement, refusal error) {
	a.live = len(f.Instances)
	for _, i := range f.Instances {
		if t.runs(i) {
			a.running++
			if t.inCanary(i) {
				a.canary++
			}
			continue
		}
		if e := i.LastError; e != nil && e.Version == t.version && refusal == nil {
			refusal = exit.Code(exit.No, fmt.Errorf("instance %s refuses version %d: %s: %s", i.InstanceID, t.version, e.Path, e.Message))
		}
	}
	if other := f.preclude(t); refusal == nil && other != nil {
		refusal = exit.Code(exit.No, fmt.Errorf("published, but %w", other))
	}
	return a, refusal
}

// refusalStands is how long an instance must say that it refuses a version before that is
// believed: what it says may still be about an earlier document of the same version, and it
// takes it back when it has read ours.
const refusalStands = 2 * time.Second

// lookEvery is how often instances are asked whether they run a push.
const lookEvery = 200 * time.Millisecond

// acknowledged waits until every live instance runs t or says why not; an error names one
// that refused. unasked says why nobody was asked.
func (v *instances) acknowledged(ctx context.Context, t target, within time.Duration) (a acknowledgement, unasked string, err error) {
	if within <= 0 {
		return a, "--wait is 0", nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	f, err := v.status(ctx)
	if err != nil {
		return a, err.Error(), nil
	}
	var since time.Time // somebody has refused
	for {
		a, refusal := f.judged(t)
		switch {
		case a.live == 0:
			return a, "no instance is live", nil
		case a.running == a.live:
			return a, "", nil
		case refusal == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= refusalStands:
			return a, "", refusal
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			if refusal == nil {
				refusal = exit.Code(exit.No, fmt.Errorf("published, but after %v only %d of %d live instances run version %d%s; see sluice rules status",
					within, a.running, a.live, t.version, f.complaint(t)))
			}
			return a, "", refusal
		}
		switch next, err := v.status(ctx); {
		case err == nil:
			f = next
		case errors.Is(err, errNobody):
			return acknowledgement{}, err.Error(), nil // those that we waited for are dead by now
		}
	}
}

// complaint is what one that does not run t says about some other document; "": nothing.
func (f fleetStatus) complaint(t target) string {
	for _, i := range f.Instances {
		if e := i.LastError; e != nil && !t.runs(i) {
			return fmt.Sprintf("; instance %s says: %s: %s", i.InstanceID, e.Path, e.Message)
		}
	}
	return ""
}

// Registry opens the instances' table in the limiter store. The caller calls done.
type Registry func(ctx context.Context) (store admission.Fleet, done func(), err error)

var errNobody = errors.New("the limiter store knows of no live instance")

var errBehind = errors.New("nothing is published: raise the version, or give --bump")
