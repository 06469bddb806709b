package sqlorders

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// failing ends its first transactions with the given errors.
type failing struct {
	errs  []error
	tries int
}

func (f *failing) Write(context.Context, func(Querier) error) error {
	f.tries++
	if f.tries > len(f.errs) {
		return nil
	}
	return f.errs[f.tries-1]
}

func (f *failing) Query(context.Context, string, []any, func(Scan) error) error { return nil }
func (f *failing) Read(context.Context, func(Querier) error) error              { return nil }
func (f *failing) Ping(context.Context) error                                   { return nil }
func (f *failing) Close() error                                                 { return nil }

func noDialect() Dialect {
	return Dialect{Rows: func(...string) string { return "" }, Lookup: func(_, _, _ string) string { return "" }}
}

func TestRetries(t *testing.T) {
	again := fmt.Errorf("%w: %w: 40P01", admission.ErrUnavailable, ErrAgain)
	for name, c := range map[string]struct {
		errs   []error
		want   error
		tries  int
		sleeps []time.Duration
	}{
		"none needed":              {nil, nil, 1, nil},
		"a deadlock":               {[]error{again}, nil, 2, []time.Duration{500 * time.Microsecond}},
		"four":                     {[]error{again, again, again, again}, nil, 5, []time.Duration{500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}},
		"without end":              {[]error{again, again, again, again, again, again}, admission.ErrUnavailable, 5, []time.Duration{500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}},
		"an unknown result is not": {[]error{admission.ErrUnknownResult}, admission.ErrUnknownResult, 1, nil},
		"nor is another fault":     {[]error{admission.ErrUnavailable}, admission.ErrUnavailable, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			db := &failing{errs: c.errs}
			var sleeps []time.Duration
			s := New(db, noDialect(), Config{
				Rand:  func() float64 { return 0.5 },
				Sleep: func(_ context.Context, d time.Duration) error { sleeps = append(sleeps, d); return nil },
			})
			err := s.EndActivity(t.Context(), "1")
			if !errors.Is(err, c.want) || db.tries != c.tries || !reflect.DeepEqual(sleeps, c.sleeps) {
				t.Fatalf("%v after %d tries and %v", err, db.tries, sleeps)
			}
		})
	}
	t.Run("a context that ends while waiting", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		db := &failing{errs: []error{again, again}}
		s := New(db, noDialect(), Config{Rand: func() float64 { cancel(); return 1 }})
		if err := s.EndActivity(ctx, "1"); !errors.Is(err, ErrAgain) || db.tries != 1 {
			t.Fatalf("%v after %d tries", err, db.tries)
		}
	})
}

func TestMigrationsAreNumbered(t *testing.T) {
	file := func(names ...string) fstest.MapFS {
		files := fstest.MapFS{}
		for _, n := range names {
			files["migrations/"+n] = &fstest.MapFile{Data: []byte("-- " + n)}
		}
		return files
	}
	steps, err := readMigrations(file("0001_a.sql", "0002_b.sql"))
	if err != nil || len(steps) != 2 || steps[1].version != 2 || steps[0].digest == steps[1].digest {
		t.Fatalf("%+v %v", steps, err)
	}
	for _, names := range [][]string{{"0002_a.sql"}, {"0001_a.sql", "0003_b.sql"}, {"first.sql"}, {"0001_a.sql", "0001_b.sql"}} {
		if _, err := readMigrations(file(names...)); err == nil || !strings.Contains(err.Error(), "want number") {
			t.Errorf("%v: %v", names, err)
		}
	}
}

func TestBatchIsBounded(t *testing.T) {
	db := &failing{}
	s := New(db, noDialect(), Config{})
	_, err := s.Decide(t.Context(), make([]admission.OrderMessage, MaxBatch+1), time.Time{})
	if !errors.Is(err, admission.ErrUnavailable) || db.tries != 0 {
		t.Fatalf("%v after %d tries", err, db.tries)
	}
}
