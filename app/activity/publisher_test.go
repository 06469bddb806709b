package activity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/sqlite"
	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

// desk is a publisher on the embedded stores.
type desk struct {
	*Publisher
	t      *testing.T
	stock  *redis.Stock
	mirror *redis.Mirror
	client goredis.UniversalClient
	events []admission.Event
	paths  int
}

// announced is an event channel whose events the desk keeps.
type announced struct {
	admission.Events
	publish func(context.Context, admission.Event) error
}

func (a announced) Publish(ctx context.Context, e admission.Event) error { return a.publish(ctx, e) }

func openDesk(t *testing.T) *desk {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client, err := redis.Open(t.Context(), server.URL(), redis.Options{Name: "stock", Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	orders, err := sqlite.Open(filepath.Join(t.TempDir(), "orders.db"), sqlorders.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = orders.Close() })
	if err := orders.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, client: client, stock: redis.NewStock(client, redis.StockOptions{}), mirror: redis.NewMirror(client)}
	d.Publisher = &Publisher{
		Orders: orders, Stock: d.stock, Mirror: d.mirror, Now: func() time.Time { return noon },
		Events: announced{publish: func(_ context.Context, e admission.Event) error {
			d.events = append(d.events, e)
			return nil
		}},
		NewPath: func(io.Reader) (string, error) {
			d.paths++
			return fmt.Sprintf("path-made-%d", d.paths), nil
		},
	}
	return d
}

// document is a good document; changes are replacements of its text.
func document(changes ...string) []byte {
	text := `{"activity_id":"10001","activity_version":1,"name":"Sale","opens_at":"2026-11-11T13:00:00Z","closes_at":"2026-11-11T14:00:00Z",` +
		`"skus":[{"sku_id":"90001","name":"A","stock":10,"limit_per_user":1,"price":{"amount":"9.90","currency":"CNY"}},` +
		`{"sku_id":"90002","name":"B","stock":5,"limit_per_user":2,"price":{"amount":"1","currency":"CNY"}}],"fairness":{"mode":"random"}}`
	return []byte(strings.NewReplacer(changes...).Replace(text))
}

func (d *desk) publish(doc []byte) (admission.Activity, error) {
	d.t.Helper()
	a, faults, err := d.Publish(d.t.Context(), doc)
	if len(faults) > 0 {
		d.t.Fatalf("faults %v", faults)
	}
	return a, err
}

// shown is what an instance reads.
func (d *desk) shown() admission.Activity {
	d.t.Helper()
	list, err := d.mirror.Activities(d.t.Context())
	if err != nil || len(list) != 1 {
		d.t.Fatalf("the mirror has %v, %v", list, err)
	}
	return list[0]
}

func (d *desk) remaining(sku string) int64 {
	d.t.Helper()
	s, err := d.stock.Snapshot(d.t.Context(), admission.SKURef{ActivityID: "10001", SKUID: sku})
	if err != nil {
		d.t.Fatal(err)
	}
	return s.Remaining
}

// TestPublish: version 1, the same again, version 2, and everything that is refused.
func TestPublish(t *testing.T) {
	d := openDesk(t)
	v1, err := d.publish(document())
	if err != nil {
		t.Fatal(err)
	}
	if v1.PathID != "path-made-1" || !v1.PublishedAt.Equal(noon) || v1.Ended {
		t.Errorf("published %+v", v1)
	}
	if a := d.shown(); a.Version != 1 || a.PathID != v1.PathID || d.remaining("90001") != 10 || d.remaining("90002") != 5 {
		t.Errorf("shown %+v", a)
	}
	if len(d.events) != 1 || d.events[0].Type != admission.EventActivity || d.events[0].ActivityID != "10001" || d.events[0].Version != 1 {
		t.Errorf("announced %+v", d.events)
	}

	d.Now = func() time.Time { return noon.Add(time.Minute) }
	again, err := d.publish(document())
	if err != nil || again.PathID != v1.PathID || !again.PublishedAt.Equal(noon) {
		t.Errorf("the same again: %+v, %v; want the same path and time of publication", again, err)
	}

	for name, c := range map[string]struct {
		doc  []byte
		says string
	}{
		"the same version with another name": {document(`"Sale"`, `"Other"`), ""},
		"a version left out":                 {document(`"activity_version":1`, `"activity_version":3`), ""},
		"another stock":                      {document(`"activity_version":1`, `"activity_version":2`, `"stock":10`, `"stock":11`), "stock"},
		"another fairness":                   {document(`"activity_version":1`, `"activity_version":2`, `"random"`, `"fifo"`), "fairness"},
		"a SKU less":                         {document(`"activity_version":1`, `"activity_version":2`, `"90002"`, `"90003"`), "sku"},
	} {
		if _, err := d.publish(c.doc); !errors.Is(err, admission.ErrConflict) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want a conflict that names %q", name, err, c.says)
		} else if strings.Count(err.Error(), "10001") != 1 {
			t.Errorf("%s: the activity is not named once: %v", name, err)
		}
		if a := d.shown(); a.Version != 1 || a.Name != "Sale" || d.remaining("90001") != 10 {
			t.Errorf("%s changed what is shown: %+v", name, a)
		}
	}

	v2, err := d.publish(document(`"activity_version":1`, `"activity_version":2`, `"Sale"`, `"Later sale"`))
	if err != nil || v2.PathID != v1.PathID || !v2.PublishedAt.Equal(noon) {
		t.Errorf("version 2: %+v, %v; tickets under way keep their path", v2, err)
	}
	if a := d.shown(); a.Version != 2 || a.Name != "Later sale" || d.remaining("90001") != 10 {
		t.Errorf("version 2 shown: %+v", a)
	}
	// Once joining for the draw has closed (5 s before the opening) people have ranks: the
	// opening stays where it is, whatever else a version changes.
	d.Now = func() time.Time { return noon.Add(time.Hour - time.Second) }
	if _, err := d.publish(document(`"activity_version":1`, `"activity_version":3`, `"2026-11-11T13:00:00Z"`, `"2026-11-11T13:10:00Z"`)); !errors.Is(err, admission.ErrConflict) || !strings.Contains(err.Error(), "opens_at") {
		t.Errorf("another opening after the draw: %v, want a conflict that names opens_at", err)
	}
	v3, err := d.publish(document(`"activity_version":1`, `"activity_version":3`, `"name":"Sale"`, `"name":"Sale","path_id":"path-of-my-own"`))
	if err != nil || v3.PathID != "path-of-my-own" || d.paths != 1 {
		t.Errorf("version 3 with a path of its own: %+v, %v, %d paths made", v3, err, d.paths)
	}
	if _, err := d.publish(document(`"10001"`, `"10002"`, `"name":"Sale"`, `"name":"Sale","path_id":"path-of-my-own"`)); !errors.Is(err, admission.ErrConflict) || !strings.Contains(err.Error(), "path_id") {
		t.Errorf("another activity's path: %v", err)
	}
}

// TestLostStockIsNotWarmed: the same document again, after the stock key of a sale under
// way was lost, must not put the whole stock on sale a second time.
func TestLostStockIsNotWarmed(t *testing.T) {
	d := openDesk(t)
	if _, err := d.publish(document()); err != nil {
		t.Fatal(err)
	}
	ref := admission.SKURef{ActivityID: "10001", SKUID: "90001"}
	if err := d.client.Del(t.Context(), "inv:"+ref.Tag()+":stock").Err(); err != nil {
		t.Fatal(err)
	}
	d.Now = func() time.Time { return noon.Add(time.Hour + time.Minute) }
	if _, err := d.publish(document()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.stock.Snapshot(t.Context(), ref); !errors.Is(err, admission.ErrNotFound) {
		t.Errorf("a lost stock was made anew by publishing: %v", err)
	}
}

// TestFaults: what is wrong with the document is told by field, and nothing is written.
func TestFaults(t *testing.T) {
	d := openDesk(t)
	for name, c := range map[string]struct {
		doc  []byte
		path string
	}{
		"no JSON":     {[]byte("{"), ""},
		"no stock":    {document(`"stock":10`, `"stock":0`), "skus[0].stock"},
		"over":        {document("2026", "2025"), "closes_at"},
		"unknown key": {document(`"name":"Sale"`, `"name":"Sale","colour":"red"`), "colour"},
		"weighted":    {document(`"mode":"random"`, `"mode":"weighted","weights":{"a":1}`), "fairness.mode"},
		"quota":       {document(`"mode":"random"`, `"mode":"quota","weights":{"a":1}`), "fairness.mode"},
		"lottery":     {document(`"mode":"random"`, `"mode":"lottery"`), "fairness.mode"},
	} {
		_, faults, err := d.Publish(t.Context(), c.doc)
		if err != nil || len(faults) != 1 || faults[0].Path != c.path {
			t.Errorf("%s: faults %v, error %v; want one at %q", name, faults, err, c.path)
		}
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 0 || len(d.events) != 0 {
		t.Errorf("a refused document left %v, %v, events %v", list, err, d.events)
	}
	if _, err := d.publish(document(`"mode":"random"`, `"mode":"fifo"`)); err != nil {
		t.Errorf("fifo: %v", err)
	}
}

// TestEnd: for good, and only what is there.
func TestEnd(t *testing.T) {
	d := openDesk(t)
	if _, err := d.publish(document()); err != nil {
		t.Fatal(err)
	}
	a, err := d.End(t.Context(), "10001")
	if err != nil || !a.Ended || !d.shown().Ended {
		t.Errorf("ended %+v, shown %+v, %v", a, d.shown(), err)
	}
	if _, err := d.End(t.Context(), "10001"); err != nil {
		t.Errorf("ended twice: %v", err)
	}
	for _, doc := range [][]byte{document(), document(`"activity_version":1`, `"activity_version":2`)} {
		if _, err := d.publish(doc); !errors.Is(err, admission.ErrConflict) {
			t.Errorf("published after its end: %v", err)
		}
	}
	for _, id := range []string{"10009", "x", "", "9223372036854775808"} {
		if _, err := d.End(t.Context(), id); !errors.Is(err, admission.ErrNotFound) {
			t.Errorf("end of %q: %v", id, err)
		}
	}
}

// TestInterrupted: a publication that broke off at any step is finished by the next try,
// and until then instances see nothing of it.
func TestInterrupted(t *testing.T) {
	for _, step := range []string{"stock", "mirror"} {
		d := openDesk(t)
		broken := errors.New("away")
		switch step {
		case "stock":
			d.Stock = failingStock{d.stock, broken}
		case "mirror":
			d.Mirror = failingMirror{d.mirror, broken}
		}
		if _, err := d.publish(document()); !errors.Is(err, broken) {
			t.Errorf("%s: %v", step, err)
		}
		if list, err := d.mirror.Activities(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("%s: instances see %v, %v", step, list, err)
		}
		d.Stock, d.Mirror = d.stock, d.mirror
		a, err := d.publish(document())
		if err != nil || d.shown().PathID != a.PathID || d.remaining("90002") != 5 {
			t.Errorf("%s, again: %+v, %v", step, a, err)
		}
	}
}

// TestShow: the mirror is made anew from SQL after it was lost.
func TestShow(t *testing.T) {
	d := openDesk(t)
	if _, err := d.publish(document()); err != nil {
		t.Fatal(err)
	}
	if err := d.client.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := d.Show(t.Context()); err != nil || d.shown().ID != "10001" {
		t.Errorf("%v", err)
	}
	d.Mirror = failingMirror{d.mirror, errors.New("away")}
	if err := d.Show(t.Context()); err == nil {
		t.Error("a mirror that is away was not told")
	}
}

type failingStock struct {
	admission.Stock
	err error
}

func (f failingStock) Warm(context.Context, admission.StockSpec) (bool, error) { return false, f.err }

type failingMirror struct {
	admission.Mirror
	err error
}

func (f failingMirror) PutActivity(context.Context, admission.Activity) error { return f.err }
