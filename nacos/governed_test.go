package nacos_test

import (
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/nacos"
)

// Each document is there once, the present one first, with the time at which it was published:
// the server's own rows have the time at which it ended.
func TestHistorySaysWhenEachWasPublished(t *testing.T) {
	servers.Need(t, servers.Nacos())
	b := backend(t, "")
	src := b.Source.(*nacos.Source)
	documents := []string{"first", "second", "third"}
	var began []time.Time
	var before []byte
	for _, doc := range documents {
		began = append(began, time.Now())
		if err := src.Publish(t.Context(), before, []byte(doc)); err != nil {
			t.Fatal(err)
		}
		before = []byte(doc)
	}
	began = append(began, time.Now())
	list, err := src.History(t.Context(), 10)
	if err != nil || len(list) != len(documents) {
		t.Fatalf("%d documents, %v: %+v", len(list), err, list)
	}
	const millisecond = time.Millisecond // the server's clock has no less
	for i, doc := range documents {
		p := list[len(list)-1-i]
		if string(p.Raw) != doc || p.At.Before(began[i].Add(-millisecond)) || p.At.After(began[i+1]) || p.By == "" {
			t.Errorf("%q of %v by %q, want %q between %v and %v", p.Raw, p.At, p.By, doc, began[i], began[i+1])
		}
	}
	if list, err := src.History(t.Context(), 1); err != nil || len(list) != 1 || string(list[0].Raw) != "third" {
		t.Errorf("the newest alone: %+v, %v", list, err)
	}
	b.Remove(t)
	list, err = src.History(t.Context(), 10)
	for i := 0; i < 100 && err == nil && len(list) == len(documents)+1; i++ { // a read just after a deletion may still find it
		time.Sleep(50 * time.Millisecond)
		list, err = src.History(t.Context(), 10)
	}
	if err != nil || len(list) != len(documents) || string(list[0].Raw) != "third" || list[0].At.After(began[3]) {
		t.Errorf("after a deletion: %+v, %v", list, err)
	}
}
