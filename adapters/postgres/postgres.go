// Package postgres keeps orders in PostgreSQL: the database that decides in production.
//
// It promises what package sqlorders promises, behind a transaction pooler too: no prepared statement has a name, no
// setting outlives its transaction, the only advisory lock is a transaction's. Connections are bounded here, and on
// the server also when many callers give up at once: pgx cancels their statements there, and the pool opens no new
// connection before the old one is gone.
//
// When the server is away, calls end with admission.ErrUnavailable within the connect timeout or their own deadline.
// A COMMIT whose answer was lost is admission.ErrUnknownResult; asking again gives the verdict.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
)

// Config of the adapter; the zero value has the defaults.
type Config struct {
	sqlorders.Config
	MaxConns int32 // of this process; default 8: deciders of one hot SKU wait for each other anyway
}

const (
	connectTimeout = 2 * time.Second
	idleFor        = 5 * time.Minute  // until an unused connection is closed
	lifetime       = 30 * time.Minute // of a connection, so that a new primary is found
	rollbackWithin = time.Second      // else the connection is closed
)

// Every transaction carries its own bounds: a pooler's server connection may have had any other user before. They
// end what a vanished client left behind, while it holds a SKU's row.
const (
	beginWrite = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = '5s'; ` +
		`SET LOCAL lock_timeout = '3s'; SET LOCAL idle_in_transaction_session_timeout = '5s'`
	beginRead = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '30s'; ` +
		`SET LOCAL idle_in_transaction_session_timeout = '5s'`
)

// Open makes a pool for the URL (postgres://…); it connects when it is first used. Close ends it.
func Open(url string, config Config) (*sqlorders.Store, error) {
	return open(url, config, func(*pgxpool.Config) {})
}

func open(url string, config Config, adjust func(*pgxpool.Config)) (*sqlorders.Store, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err) // pgx hides the password
	}
	c.MaxConns = config.MaxConns
	if c.MaxConns <= 0 {
		c.MaxConns = 8
	}
	c.MinConns = 0
	c.MaxConnIdleTime, c.MaxConnLifetime, c.MaxConnLifetimeJitter = idleFor, lifetime, lifetime/10
	c.ConnConfig.ConnectTimeout = connectTimeout
	// types are asked for once and remembered here; what runs on the server is always the unnamed statement
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	c.ConnConfig.StatementCacheCapacity = 0
	adjust(c)
	pool, err := pgxpool.NewWithConfig(context.Background(), c) // the context bounds connecting only, which comes later
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return sqlorders.New(&database{pool}, dialect(), config.Config), nil
}

type database struct{ pool *pgxpool.Pool }

// Query reads by one statement, which is a snapshot by itself.
func (d *database) Query(ctx context.Context, statement string, args []any, each func(sqlorders.Scan) error) error {
	return query(ctx, d.pool, statement, args, each)
}

// Read runs f on one snapshot.
func (d *database) Read(ctx context.Context, f func(sqlorders.Querier) error) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginRead})
	if err != nil {
		return fault(err)
	}
	defer rollback(ctx, tx)
	return f(transaction{tx})
}

// Write runs f in one transaction.
func (d *database) Write(ctx context.Context, f func(sqlorders.Querier) error) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginWrite})
	if err != nil {
		return fault(err)
	}
	defer rollback(ctx, tx)
	if err := f(transaction{tx}); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return commitFault(err)
	}
	return nil
}

// Ping asks the server.
func (d *database) Ping(ctx context.Context) error {
	if err := d.pool.Ping(ctx); err != nil {
		return fault(err)
	}
	return nil
}

// Close waits for the connections in use and ends all.
func (d *database) Close() error {
	d.pool.Close()
	return nil
}

// rollback gives the connection back; one that does not answer is closed instead. After a commit it does nothing.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
	defer cancel()
	_ = tx.Rollback(ctx)
}

type transaction struct{ tx pgx.Tx }

func (t transaction) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, statement, args...)
	if err != nil {
		return 0, fault(err)
	}
	return tag.RowsAffected(), nil
}

func (t transaction) Query(ctx context.Context, statement string, args []any, each func(sqlorders.Scan) error) error {
	return query(ctx, t.tx, statement, args, each)
}

func query(ctx context.Context, on interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, statement string, args []any, each func(sqlorders.Scan) error) error {
	rows, err := on.Query(ctx, statement, args...)
	if err != nil {
		return fault(err)
	}
	defer rows.Close()
	scan := func(dest ...any) error {
		if err := rows.Scan(dest...); err != nil {
			return fault(err)
		}
		return nil
	}
	for rows.Next() {
		if err := each(scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fault(err)
	}
	return nil
}

// fault classifies an error before the COMMIT: whatever it is, nothing was written.
func fault(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "40001", "40P01": // serialization_failure, deadlock_detected
			return fmt.Errorf("postgres: %w: %w: %w", admission.ErrUnavailable, sqlorders.ErrAgain, err)
		case "23505": // unique_violation
			return fmt.Errorf("postgres: %w: %w", admission.ErrConflict, err)
		}
	}
	return fmt.Errorf("postgres: %w: %w", admission.ErrUnavailable, err)
}

// commitFault classifies an error of the COMMIT. Only where the server, or the driver before sending anything, said
// no is it known that nothing was written.
func commitFault(err error) error {
	var e *pgconn.PgError
	refused := errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
	if refused || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) || pgconn.SafeToRetry(err) {
		return fault(err)
	}
	return fmt.Errorf("postgres: commit: %w: %w", admission.ErrUnknownResult, err)
}
