package rules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Config of an Applier.
type Config struct {
	InstanceID string
	LastGood   string // file; "": none is kept
	// Origin names the source that the last good file is bound to: its kind and what
	// is read there. A file of another origin neither raises the least version nor is used. "":
	// the source's own name.
	Origin string
	// HighWater raises and returns the greatest version that the cluster has seen (0 reads
	// only); nil: there is no cluster.
	HighWater func(ctx context.Context, version int64) (int64, error)
	// KnowsKey reports whether a ticket key is in this instance's ring; nil: every key is
	// taken for known. A bundle that names another is refused whole.
	KnowsKey func(keyID string) bool
	BootWait time.Duration // for the source's first answer before the last good is used; default 5 s
	Grace    time.Duration // behind the high-water mark before it is an alarm; default 10 s
	Engine   Engine        // default Sentinel
	Now      func() time.Time
	Log      *slog.Logger
	Metrics  *Metrics // nil counts nothing
}

func (c Config) withDefaults() Config {
	if c.BootWait == 0 {
		c.BootWait = 5 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.Engine == nil {
		c.Engine = NewSentinelEngine()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// maxJump is how far a version may rise without being confirmed: further is a slip.
const maxJump = 1_000

// stampEvery is how often the last good file is told that it is still the current one.
const stampEvery = time.Minute

// Applier brings bundles into force, one at a time. Everything up to the swap of the
// snapshot is undone when a later step fails.
type Applier struct {
	cfg      Config
	snapshot atomic.Pointer[Snapshot]
	onApply  []func(*Snapshot) // set before Run

	mu        sync.Mutex // serialises Apply
	main      *Bundle    // guarded by mu; the main part of the document in force
	floor     int64      // guarded by mu; at boot, the least version that may come into force
	floorSeen bool       // guarded by mu; the floor was read
	previous  *Bundle    // guarded by mu; main part of the last good at boot
	judged    []byte     // guarded by mu; the last document judged, so that a poll costs nothing
	judgement error      // guarded by mu; nil: it is in force
	behind    time.Time  // guarded by mu; since when the high-water mark is above us

	lastError atomic.Pointer[LastError]
	confirmed atomic.Int64 // Unix ns of the last contact that showed our version as current
	stale     atomic.Bool
}

// Status is what an instance says about its rules: GET /admin/v1/rules.
type Status struct {
	InstanceID string     `json:"instance_id"`
	Version    int64      `json:"version"`
	Hash       string     `json:"hash"`
	Source     string     `json:"source"`
	AgeMS      int64      `json:"age_ms"`
	LastError  *LastError `json:"last_error"`
	Canary     bool       `json:"canary,omitempty"`
	Stale      bool       `json:"stale,omitempty"` // behind the cluster's high-water mark
}

// LastError is the last refusal, until a document is accepted again.
type LastError struct {
	Version int64     `json:"version"`
	Path    string    `json:"path"`
	Message string    `json:"message"`
	Reason  Reason    `json:"reason"`
	Faults  Faults    `json:"faults,omitempty"` // all of them, when there is more than one
	At      time.Time `json:"at"`
}

// NewApplier returns an applier with nothing in force.
func NewApplier(cfg Config) *Applier { return &Applier{cfg: cfg.withDefaults()} }

// OnApply registers f, which is called after every swap, in order, on the applying
// goroutine. It must be called before Run and f must not call Apply.
func (a *Applier) OnApply(f func(*Snapshot)) { a.onApply = append(a.onApply, f) }

// Snapshot is what is in force; nil before the first bundle. It is one atomic load.
func (a *Applier) Snapshot() *Snapshot { return a.snapshot.Load() }

// Ready says why there are no rules in force, or nil.
func (a *Applier) Ready() error {
	if a.Snapshot() != nil {
		return nil
	}
	switch e := a.lastError.Load(); {
	case e != nil && e.Reason == RefusedDeleted:
		return fmt.Errorf("no rules in force: %s", e.Message) // there is no document to have a path
	case e != nil:
		return fmt.Errorf("no rules in force: %s: %s", e.Path, e.Message)
	}
	return errors.New("no rules in force: the source has not answered")
}

// Age is the time since the source last showed our version as current.
func (a *Applier) Age(now time.Time) time.Duration {
	at := a.confirmed.Load()
	if at == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, at)))
}

// Stale reports whether this instance has been behind the cluster's high-water mark for
// longer than the grace.
func (a *Applier) Stale() bool { return a.stale.Load() }

// Status of the rules now.
func (a *Applier) Status() Status {
	s := Status{InstanceID: a.cfg.InstanceID, LastError: a.lastError.Load(), Stale: a.Stale(), AgeMS: a.Age(a.cfg.Now()).Milliseconds()}
	if snap := a.Snapshot(); snap != nil {
		s.Version, s.Hash, s.Source, s.Canary = snap.Version, snap.Hash, snap.Source, snap.Canary
	}
	return s
}

// Apply judges one look at the source. It returns a *Rejection when a document is refused;
// what was in force stays.
func (a *Applier) Apply(ctx context.Context, u Update, source string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case u.Err != nil:
		a.cfg.Metrics.unreachable()
		return u.Err
	case u.Absent:
		words := "the document is gone from " + source + "; the rules in force stay"
		if a.Snapshot() == nil {
			words = "no document at " + source + " yet; `sluice rules show --default > rules.json && sluice rules push rules.json` publishes the first"
		}
		return a.refuse(u.Raw, reject(RefusedDeleted, nil, Fault{"$", words}))
	case a.judged != nil && bytes.Equal(a.judged, u.Raw):
		if a.judgement == nil {
			a.confirm(u, source)
		}
		return a.judgement
	}
	return a.judge(ctx, u, source)
}

func (a *Applier) judge(ctx context.Context, u Update, source string) error {
	start := a.cfg.Now()
	doc, warnings, err := Decode(u.Raw)
	if err != nil {
		return a.refuse(u.Raw, asRejection(err))
	}
	a.readFloor(ctx, source)
	current := a.Snapshot()
	if current != nil && doc.Version == current.Version && doc.Hash() == current.Document {
		a.accept(u, source)
		return nil
	}
	if r := a.checkOrder(doc, current); r != nil {
		return a.refuse(u.Raw, r)
	}
	run, canary := a.choose(doc)
	if r := a.checkPlausible(doc, run, current); r != nil {
		return a.refuse(u.Raw, r)
	}
	if id := run.Ticket.ActiveKeyID; id != "" && a.cfg.KnowsKey != nil && !a.cfg.KnowsKey(id) {
		return a.refuse(nil, reject(RefusedValidate, doc, Fault{"$.ticket.active_key_id", fmt.Sprintf("key %q is not in this instance's ring; every instance must know a key before it signs", id)})) // not remembered: the key may come
	}
	next := Compile(run)
	next.Version, next.Document, next.Canary = doc.Version, doc.Hash(), canary
	next.Source, next.Applied, next.Warnings = source, start, warnings
	if err := a.cfg.Engine.Load(next.Sentinel, next.Shadows); err != nil {
		return a.refuse(nil, reject(RefusedLoad, doc, Fault{"$.sentinel", err.Error()})) // not remembered: it may work the next time
	}
	a.snapshot.Store(next)
	for _, f := range a.onApply {
		f(next) // before the disk and before anybody is told: in force means in the chains
	}
	a.main = doc
	a.accept(u, source)
	a.save(u, source)
	a.cfg.Metrics.inForce(next.Version, source == lastGoodName, a.cfg.Now().Sub(start).Seconds())
	a.cfg.Log.Info("rules in force", "event", "rules_applied", "version", next.Version, "hash", next.Hash, "source", source,
		"canary", canary, "comment", run.Comment, "warnings", len(warnings))
	return nil
}

// accept remembers that this document is in force and current.
func (a *Applier) accept(u Update, source string) {
	a.judged, a.judgement = u.Raw, nil
	a.lastError.Store(nil)
	a.confirm(u, source)
}

// confirm moves the age. The last good document itself is no contact with the source.
func (a *Applier) confirm(u Update, source string) {
	before := a.confirmed.Load()
	a.confirmed.Store(max(before, u.At.UnixNano()))
	if source == lastGoodName {
		return
	}
	if snap := a.Snapshot(); snap != nil && snap.Source == lastGoodName {
		moved := *snap // the source came back with the same document
		moved.Source = source
		a.snapshot.Store(&moved)
		a.cfg.Metrics.from(false)
	}
	if before != 0 && u.At.Sub(time.Unix(0, before)) > stampEvery {
		a.save(u, source)
	}
}

// save keeps the last good document. A disk that fails costs the next start, not this one.
func (a *Applier) save(u Update, source string) {
	if a.cfg.LastGood == "" || source == lastGoodName {
		return
	}
	if err := saveLastGood(a.cfg.LastGood, u.Raw, a.origin(source), u.At); err != nil {
		a.cfg.Log.Error("the last good rules were not saved", "event", "rules_save_failed", "error", err)
	}
}

func (a *Applier) refuse(raw []byte, r *Rejection) error {
	repeated := a.judgement != nil && a.judgement.Error() == r.Error()
	a.judged, a.judgement = raw, r
	e := &LastError{Version: r.Version, Path: r.Faults[0].Path, Message: r.Faults[0].Message, Reason: r.Reason, At: a.cfg.Now()}
	if n := len(r.Faults); n > 1 {
		e.Message = fmt.Sprintf("%s (and %d more)", e.Message, n-1)
		e.Faults = r.Faults
	}
	a.lastError.Store(e)
	if repeated {
		return r // a key that stays deleted is one event
	}
	a.cfg.Metrics.refused(r.Reason)
	a.cfg.Log.Error("rules refused", "event", "rules_refused", "reason", string(r.Reason), "version", r.Version, "path", e.Path, "message", e.Message)
	return r
}

// checkOrder holds versions to their order.
func (a *Applier) checkOrder(doc *Bundle, current *Snapshot) *Rejection {
	const path = "$.version"
	if current == nil {
		if doc.Version < a.floor {
			return reject(RefusedHighWater, doc, Fault{path, fmt.Sprintf("%d is below %d, which this instance or the cluster has already seen", doc.Version, a.floor)})
		}
		return a.checkPolicies(doc, a.previous)
	}
	switch {
	case doc.Version == current.Version:
		return reject(RefusedVersion, doc, Fault{path, fmt.Sprintf("%d is in force with other content; raise the version", doc.Version)})
	case doc.Version < current.Version:
		return reject(RefusedVersion, doc, Fault{path, fmt.Sprintf("%d is below %d, which is in force", doc.Version, current.Version)})
	case doc.Version-current.Version > maxJump && doc.Confirm != doc.Hash():
		return reject(RefusedVersion, doc, Fault{path, fmt.Sprintf("jumps from %d to %d, more than %d; to mean it set \"confirm\" to %q", current.Version, doc.Version, maxJump, doc.Hash())})
	}
	return a.checkPolicies(doc, a.main)
}

// checkPolicies: a policy never gets older, neither in the main bundle nor in its canary.
func (a *Applier) checkPolicies(doc, before *Bundle) *Rejection {
	if before == nil {
		return nil
	}
	had := map[admission.SKURef]int64{}
	for _, p := range before.Admission.Rules {
		had[admission.SKURef{ActivityID: p.ActivityID, SKUID: p.SKUID}] = p.PolicyVersion
	}
	var faults Faults
	check := func(path string, b *Bundle) {
		for i, p := range b.Admission.Rules {
			if v := had[admission.SKURef{ActivityID: p.ActivityID, SKUID: p.SKUID}]; p.PolicyVersion < v {
				faults = append(faults, Fault{at(path+".admission", i) + ".policy_version", fmt.Sprintf("%d is older than %d, which is in force for activity %s, SKU %s", p.PolicyVersion, v, p.ActivityID, p.SKUID)})
			}
		}
	}
	check("$", doc)
	if doc.Canary != nil {
		check("$.canary.bundle", doc.Canary.Bundle)
	}
	if len(faults) == 0 {
		return nil
	}
	return reject(RefusedPolicyVersion, doc, faults...)
}

// checkPlausible wants the hash of the document, or of the canary's bundle alone, in words
// that cannot be typed by accident.
func (a *Applier) checkPlausible(doc, run *Bundle, current *Snapshot) *Rejection {
	if current == nil {
		return nil
	}
	faults := implausible(current.Bundle, run)
	if len(faults) == 0 || doc.Confirm == doc.Hash() || run.Confirm == run.Hash() {
		return nil
	}
	faults[0].Message += fmt.Sprintf("; to mean it set \"confirm\" to %q", doc.Hash())
	return reject(RefusedConfirm, doc, faults...)
}

// choose picks the bundle of this instance: the same instances are in every canary of the
// same or a greater percentage.
func (a *Applier) choose(doc *Bundle) (*Bundle, bool) {
	if doc.Canary == nil || !InCanary(a.cfg.InstanceID, doc.Canary.Percent) {
		return doc, false
	}
	return doc.Canary.Bundle, true
}

// InCanary reports whether an instance belongs to the percentage.
func InCanary(instanceID string, percent float64) bool {
	sum := sha256.Sum256([]byte("canary\x00" + instanceID))
	return float64(binary.BigEndian.Uint64(sum[:8])%10_000) < percent*100
}

// readFloor reads, once, what may not be undercut at boot.
func (a *Applier) readFloor(ctx context.Context, source string) {
	if a.floorSeen {
		return
	}
	a.floorSeen = true
	if last := a.lastGood(source); last != nil {
		if doc, _, err := Decode([]byte(last.Document)); err == nil {
			a.floor, a.previous = doc.Version, doc
		}
	}
	if a.cfg.HighWater == nil {
		return
	}
	mark, err := a.highWater(ctx, 0)
	if err != nil {
		// The store that knows is away, and with it every new purchase.
		a.floorSeen = false
		a.cfg.Log.Warn("the high-water mark of the rules was not read", "event", "rules_high_water", "error", err)
		return
	}
	a.floor = max(a.floor, mark)
}

// origin is what the last good file of that source is bound to.
func (a *Applier) origin(source string) string {
	if a.cfg.Origin != "" {
		return a.cfg.Origin
	}
	return source
}

// lastGood is the file's document, nil when there is none of this source. The file itself as
// the source has been looked at before it was applied.
func (a *Applier) lastGood(source string) *lastGood {
	if a.cfg.LastGood == "" {
		return nil
	}
	last, err := readLastGood(a.cfg.LastGood)
	if err != nil {
		a.cfg.Log.Error("the last good rules cannot be used", "event", "rules_last_good", "error", err)
		return nil
	}
	if last != nil && source != lastGoodName && last.Source != a.origin(source) {
		a.cfg.Log.Info("the last good rules are of another source and not used", "event", "rules_last_good", "theirs", last.Source, "ours", a.origin(source))
		return nil
	}
	return last
}

func asRejection(err error) *Rejection {
	var r *Rejection
	if errors.As(err, &r) {
		return r
	}
	return reject(RefusedDecode, nil, Fault{"$", err.Error()})
}
