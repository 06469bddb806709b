package postgres

import (
	"embed"
	"fmt"
	"strings"

	"github.com/sluice-io/sluice/adapters/sqlorders"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the key of the advisory lock that migrations of one database take: "sluice" in ASCII.
const migrationLock = 0x736c75696365

func dialect() sqlorders.Dialect {
	return sqlorders.Dialect{
		Rows:           rows,
		Args:           func(columns ...any) ([]any, error) { return columns, nil },
		Lookup:         lookup,
		LockSKUs:       " FOR UPDATE OF s",
		LockActivities: "LOCK TABLE activities IN SHARE ROW EXCLUSIVE MODE",
		// of the transaction, not of the session: behind a pooler a session is nobody's
		LockMigrations: fmt.Sprintf("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(%d)", int64(migrationLock)),
		Migrations:     migrations,
	}
}

// rows is a table of one array argument for each column, in the order of the elements.
func rows(columns ...string) string {
	names, arrays := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		name, kind, _ := strings.Cut(c, " ")
		names[i], arrays[i] = name, fmt.Sprintf("$%d::%s[]", i+1, kind)
	}
	return "unnest(" + strings.Join(arrays, ", ") + ") AS m(" + strings.Join(names, ", ") + ")"
}

// lookup is a lateral subquery that OFFSET keeps from being merged: the statistics of a table that was empty a minute
// ago would have PostgreSQL read all of it for every batch, or worse, join it to the batch by a nested loop.
func lookup(join, table, condition string) string {
	_, alias, _ := strings.Cut(table, " ")
	on := ""
	if join != "CROSS JOIN" {
		on = " ON true"
	}
	return fmt.Sprintf(" %s LATERAL (SELECT %s.* FROM %s WHERE %s OFFSET 0) AS %s%s", join, alias, table, condition, alias, on)
}
