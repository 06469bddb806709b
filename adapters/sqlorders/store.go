// Package sqlorders is the database that decides (60-orders), written once for PostgreSQL and SQLite.
//
// It promises, on either: a reservation is decided once and keeps its verdict; sold never exceeds total; a user has
// at most one order of a SKU that is not CANCELLED; an order reaches one terminal state; what pay and cancel changed
// is marked effect_due in the same transaction. Every decider of a SKU first locks the SKU's row, and rows are locked
// in one order everywhere: SKUs by (activity, SKU), then orders.
//
// When the database is away every method returns an error that wraps admission.ErrUnavailable, or
// admission.ErrUnknownResult when the answer to a COMMIT was lost. Nothing is released and nothing is invented:
// calling again with the same arguments gives the verdict that was reached.
//
//	decide.go      the decision, without I/O       store.go      transactions, retries
//	consume.go     the consumer's transaction      statements.go every SQL statement
//	terminal.go    pay, cancel                     activity.go   publishing
//	verdict.go     reading verdicts and orders     migrate.go    the schema
package sqlorders

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Bounds of the store.
const (
	MaxBatch          = 1000             // messages of one Decide
	MaxPage           = 10_000           // verdicts of one read
	MaxDeadLetterBody = 64 << 10         // bytes kept of one dead letter
	maxReasonLen      = 1 << 10          // bytes
	maxHashLen        = 128              // bytes of a body hash
	maxPaymentIDLen   = 128              // bytes
	maxTries          = 5                // of a transaction that a deadlock or a serialization failure ended
	firstBackoff      = time.Millisecond // before the second try; doubles; jittered over its whole length
	migrationTimeout  = 5 * time.Minute
)

// ErrAgain marks a transaction that the database ended in favour of another one (40001, 40P01): nothing was written,
// and the same transaction may well succeed now. An adapter wraps it beside admission.ErrUnavailable.
var ErrAgain = errors.New("transaction may be tried again")

// Querier runs statements. Its errors are classified: they wrap one of the errors of package admission.
type Querier interface {
	// Exec returns the number of affected rows.
	Exec(ctx context.Context, statement string, args ...any) (int64, error)
	// Query calls each once for every row; an error of each ends it and is returned as it is.
	Query(ctx context.Context, statement string, args []any, each func(scan Scan) error) error
}

// Scan reads the current row.
type Scan func(dest ...any) error

// Database is what differs between databases in behaviour.
type Database interface {
	// Query reads by one statement.
	Query(ctx context.Context, statement string, args []any, each func(scan Scan) error) error
	// Read runs f on one snapshot.
	Read(ctx context.Context, f func(Querier) error) error
	// Write runs f in one transaction. An error of f rolls it back and is returned as it is; an error before the
	// COMMIT wraps admission.ErrUnavailable, a COMMIT without an answer admission.ErrUnknownResult.
	Write(ctx context.Context, f func(Querier) error) error
	Ping(ctx context.Context) error
	Close() error
}

// Dialect is what differs between databases in text.
type Dialect struct {
	// Rows is a table expression of the given columns ("sku_id bigint"), filled by what Args makes of their slices.
	Rows func(columns ...string) string
	// Args turns columns ([]int64 or []string, all of one length) into the arguments that Rows reads, from $1.
	Args func(columns ...any) ([]any, error)
	// Lookup joins a table ("outcomes o") to what stands before it, by one index lookup for each row of that and never
	// by reading the table. join is CROSS JOIN or LEFT JOIN.
	Lookup func(join, table, condition string) string
	// LockSKUs ends a SELECT of skus s, so that it locks what it reads; "" when writers are alone anyway.
	LockSKUs string
	// LockActivities makes publications wait for each other; "" when writers are alone anyway.
	LockActivities string
	// LockMigrations makes migrations wait for each other, until the end of the transaction; "" as above.
	LockMigrations string
	// Migrations holds NNNN_name.sql files.
	Migrations fs.FS
}

// Config of a Store; the zero value has the defaults.
type Config struct {
	Timeout     time.Duration                                    // of a call whose context has no deadline; default 10 s
	DeadLetters int64                                            // kept at most, the newest; default 10,000
	Rand        func() float64                                   // 0..1, jitter of retries
	Sleep       func(ctx context.Context, d time.Duration) error // between tries
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.DeadLetters <= 0 {
		c.DeadLetters = 10_000
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Store implements admission.Orders.
type Store struct {
	db      Database
	dialect Dialect
	sql     statements
	config  Config
}

var _ admission.Orders = (*Store)(nil)

// New makes a store over an open database.
func New(db Database, dialect Dialect, config Config) *Store {
	return &Store{db: db, dialect: dialect, sql: newStatements(dialect), config: config.withDefaults()}
}

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.db.Ping(ctx)
}

// Close ends the connections.
func (s *Store) Close() error { return s.db.Close() }

// NextTerm returns a number greater than every one before. It is a row and not a sequence: a sequence may repeat a
// number after a crash when the transaction that took it wrote nothing.
func (s *Store) NextTerm(ctx context.Context) (term int64, err error) {
	err = s.write(ctx, "next term", func(q Querier) error {
		return q.Query(ctx, nextTerm, nil, func(scan Scan) error { return scan(&term) })
	})
	return term, err
}

// DeadLetter keeps the newest Config.DeadLetters messages that can never be decided.
func (s *Store) DeadLetter(ctx context.Context, body []byte, reason string, now time.Time) error {
	body, reason = body[:min(len(body), MaxDeadLetterBody)], reason[:min(len(reason), maxReasonLen)]
	return s.write(ctx, "dead letter", func(q Querier) error {
		var id int64
		err := q.Query(ctx, insertDeadLetter, []any{body, printable(reason), now.UnixMilli()}, func(scan Scan) error { return scan(&id) })
		if err != nil {
			return err
		}
		_, err = q.Exec(ctx, dropDeadLetters, id-s.config.DeadLetters)
		return err
	})
}

// write runs f in a transaction, again from its beginning when another one won. f may therefore run several times.
func (s *Store) write(ctx context.Context, what string, f func(Querier) error) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	backoff := firstBackoff
	for try := 1; ; try++ {
		err := s.db.Write(ctx, f)
		if err == nil {
			return nil
		}
		if try == maxTries || !errors.Is(err, ErrAgain) || s.config.Sleep(ctx, time.Duration(s.config.Rand()*float64(backoff))) != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		backoff *= 2
	}
}

// bounded gives a context without a deadline one.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.config.Timeout)
}
