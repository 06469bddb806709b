// Package sqlite keeps orders in one SQLite file: the database that decides when nothing is installed.
//
// It promises what package sqlorders promises. A committed order survives a crash of the process and of the machine
// (WAL, synchronous FULL). One connection writes, so that transactions are serial by construction; readers see
// snapshots beside it. Another process may read the file; one that writes makes us wait up to five seconds, after
// which the call is admission.ErrUnavailable. A full disk is ErrUnavailable too.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
)

const (
	readers     = 4               // connections beside the writer
	busyTimeout = 5 * time.Second // waiting for another process that writes
	cacheSize   = 8 << 10         // KiB of pages per connection
)

// Open opens or creates the file. The schema is Migrate's.
func Open(path string, config sqlorders.Config) (*sqlorders.Store, error) {
	// Who bought what is nobody else's business on this machine; SQLite gives its WAL the
	// mode of the file.
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err == nil { // else SQLite says what is wrong
		_ = f.Close()
	}
	write, err := open(path, 1, "_txlock=immediate")
	if err != nil {
		return nil, err
	}
	read, err := open(path, readers, "_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	d := &database{write: write, read: read}
	if err := d.write.Ping(); err != nil { // creates the file and turns WAL on before anybody reads
		return nil, errors.Join(fault(err, admission.ErrUnavailable), d.Close())
	}
	return sqlorders.New(d, dialect(), config), nil
}

func open(path string, connections int, parameter string) (*sql.DB, error) {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	dsn := fmt.Sprintf("%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=cache_size(-%d)&%s",
		file.String(), busyTimeout.Milliseconds(), cacheSize, parameter)
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fault(err, admission.ErrUnavailable)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

type database struct{ write, read *sql.DB }

// Query reads by one statement, which is a snapshot by itself.
func (d *database) Query(ctx context.Context, statement string, args []any, each func(sqlorders.Scan) error) error {
	return query(ctx, d.read, statement, args, each)
}

// Read runs f on one snapshot, which begins with its first statement.
func (d *database) Read(ctx context.Context, f func(sqlorders.Querier) error) error {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fault(err, admission.ErrUnavailable)
	}
	defer func() { _ = tx.Rollback() }() // it wrote nothing
	return f(transaction{tx})
}

// Write begins at once as the writer (BEGIN IMMEDIATE), so that nothing is read that another writer may change.
func (d *database) Write(ctx context.Context, f func(sqlorders.Querier) error) error {
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return fault(err, admission.ErrUnavailable)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := f(transaction{tx}); err != nil {
		return err
	}
	err = tx.Commit()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fault(err, admission.ErrUnavailable) // rolled back before COMMIT was run
	default:
		return fault(err, admission.ErrUnknownResult)
	}
}

// Ping reads something, since a file answers no ping.
func (d *database) Ping(ctx context.Context) error {
	var one int
	if err := d.read.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&one); err != nil {
		return fault(err, admission.ErrUnavailable)
	}
	return nil
}

// Close writes the log back into the file and ends the connections.
func (d *database) Close() error { return errors.Join(d.read.Close(), d.write.Close()) }

type transaction struct{ tx *sql.Tx }

func (t transaction) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	r, err := t.tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, fault(err, admission.ErrUnavailable)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, fault(err, admission.ErrUnavailable)
	}
	return n, nil
}

func (t transaction) Query(ctx context.Context, statement string, args []any, each func(sqlorders.Scan) error) error {
	return query(ctx, t.tx, statement, args, each)
}

func query(ctx context.Context, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, statement string, args []any, each func(sqlorders.Scan) error) error {
	rows, err := on.QueryContext(ctx, statement, args...)
	if err != nil {
		return fault(err, admission.ErrUnavailable)
	}
	defer func() { _ = rows.Close() }() // its error is that of rows.Err
	scan := func(dest ...any) error {
		if err := rows.Scan(dest...); err != nil {
			return fault(err, admission.ErrUnavailable)
		}
		return nil
	}
	for rows.Next() {
		if err := each(scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fault(err, admission.ErrUnavailable)
	}
	return nil
}

// fault wraps a driver's error in kind, or in ErrConflict where a unique index refused.
func fault(err, kind error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY) {
		kind = admission.ErrConflict
	}
	return fmt.Errorf("sqlite: %w: %w", kind, err)
}
