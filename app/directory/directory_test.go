package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/app/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

// mirror is a mirror that shows what the test puts there.
type mirror struct {
	admission.Mirror
	mu    sync.Mutex
	list  []admission.Activity // guarded by mu
	err   error                // guarded by mu
	reads int                  // guarded by mu
}

func (m *mirror) Activities(context.Context) ([]admission.Activity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	return append([]admission.Activity(nil), m.list...), m.err
}

func (m *mirror) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

func (m *mirror) show(list ...admission.Activity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list, m.err = list, nil
}

// kept is a log that may be read while it is written.
type kept struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(p)
}

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.String()
}

func sale(id string, version int64, path string) admission.Activity {
	return admission.Activity{ID: id, Version: version, PathID: path, PublishedAt: noon, ClosesAt: noon.Add(time.Hour), SKUs: []admission.SKU{{ID: "9" + id}}}
}

func open(t *testing.T) (*Directory, *mirror, func()) {
	t.Helper()
	m := &mirror{}
	d := New(m, slog.New(slog.DiscardHandler))
	return d, m, func() {
		t.Helper()
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectory(t *testing.T) {
	d, m, refresh := open(t)
	if d.ByID("1") != nil || d.ByPath("path-one") != nil || len(d.All()) != 0 || len(d.SKUs(noon)) != 0 {
		t.Error("an empty directory knows something")
	}
	ended := sale("3", 1, "path-three")
	ended.Ended = true
	m.show(sale("2", 1, "path-two"), ended, sale("1", 1, "path-one"))
	refresh()
	if a := d.ByPath("path-one"); a == nil || a.ID != "1" || d.ByID("1") != a {
		t.Errorf("path-one is %+v", a)
	}
	if d.ByPath("") != nil || d.ByPath("1") != nil || d.ByID("path-one") != nil {
		t.Error("an id is found as a path, or the other way round")
	}
	if all := d.All(); len(all) != 3 || all[0].ID != "1" || all[2].ID != "3" {
		t.Errorf("not by id: %v", all)
	}
	if refs := fmt.Sprint(d.SKUs(noon)); refs != "[{1 91} {2 92} {3 93}]" {
		t.Errorf("SKUs %s, want those of ended sales too: their holders still ask", refs)
	}
	m.show(sale("2", 1, "path-two"))
	for range keepMissing {
		if refresh(); d.ByID("1") == nil || d.ByPath("path-one") == nil {
			t.Fatal("an activity vanished with one reading: a mirror that was lost is written again within seconds")
		}
	}
	if refresh(); d.ByID("1") != nil || d.ByPath("path-one") != nil {
		t.Error("a removed activity is still found")
	}
}

// TestStaleReadings: a replica that lags brings nothing old back.
func TestStaleReadings(t *testing.T) {
	d, m, refresh := open(t)
	m.show(sale("1", 2, "path-new"))
	refresh()
	m.show(sale("1", 1, "path-old"))
	if refresh(); d.ByID("1").Version != 2 || d.ByPath("path-old") != nil {
		t.Errorf("version %d is in view", d.ByID("1").Version)
	}
	over := sale("1", 2, "path-new")
	over.Ended = true
	m.show(over)
	refresh()
	m.show(sale("1", 2, "path-new"))
	if refresh(); !d.ByID("1").Ended {
		t.Error("an ended sale is open again")
	}
	anew := sale("1", 1, "path-anew") // the demonstration of a new start
	anew.PublishedAt = noon.Add(time.Hour)
	m.show(anew)
	if refresh(); d.ByID("1").Version != 1 || d.ByID("1").Ended || d.ByPath("path-anew") == nil {
		t.Errorf("begun anew, in view is %+v", d.ByID("1"))
	}
	m.mu.Lock()
	m.err = errors.New("away")
	m.mu.Unlock()
	if err := d.Refresh(t.Context()); err == nil || d.ByID("1") == nil {
		t.Errorf("store away: %v, and the last view is %v", err, d.ByID("1"))
	}
}

// TestFormerPaths: a ticket of the version before still reaches its activity; another
// activity's own path wins; what is remembered is bounded.
func TestFormerPaths(t *testing.T) {
	d, m, refresh := open(t)
	m.show(sale("1", 1, "path-1a"), sale("2", 1, "path-2a"))
	refresh()
	m.show(sale("1", 2, "path-1b"), sale("2", 1, "path-2a"))
	refresh()
	m.show(sale("1", 3, "path-1c"), sale("2", 1, "path-2a"))
	refresh()
	for _, path := range []string{"path-1a", "path-1b", "path-1c"} {
		if a := d.ByPath(path); a == nil || a.ID != "1" || a.Version != 3 {
			t.Errorf("%s finds %+v, want version 3", path, a)
		}
	}
	m.show(sale("1", 3, "path-1c"), sale("2", 2, "path-1a"))
	if refresh(); d.ByPath("path-1a").ID != "2" || d.ByPath("path-2a").ID != "2" {
		t.Error("a former path hides one of now")
	}
	m.show(sale("2", 2, "path-1a"))
	for range keepMissing {
		refresh()
	}
	if refresh(); d.ByPath("path-1b") != nil {
		t.Error("the former path of a removed activity is still found")
	}
	for i := range 2 * maxFormer {
		m.show(sale("2", int64(3+i), fmt.Sprintf("path-%d", i)))
		refresh()
	}
	if n := len(d.view.Load().byPath); n > maxFormer+1 {
		t.Errorf("%d paths are remembered", n)
	}
}

// TestRun rereads every period and when woken, says that it could not, and ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &kept{}
		m := &mirror{err: errors.New("away")}
		d := New(m, slog.New(slog.NewTextHandler(log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.Run(ctx, time.Second); close(done) }()
		synctest.Wait()
		if m.count() != 1 || !strings.Contains(log.String(), "directory_stale") {
			t.Errorf("%d readings at the start, log %q", m.count(), log.String())
		}
		time.Sleep(2500 * time.Millisecond) // of the bubble's clock
		synctest.Wait()
		if m.count() != 3 {
			t.Errorf("%d readings in 2.5 s, want 3", m.count())
		}
		m.show(sale("1", 1, "path-one"))
		d.Wake()
		d.Wake()
		synctest.Wait()
		if d.ByID("1") == nil {
			t.Error("woken, it did not reread")
		}
		stop()
		<-done
	})
}
