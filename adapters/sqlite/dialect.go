package sqlite

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-io/sluice/adapters/sqlorders"
)

//go:embed migrations/*.sql
var migrations embed.FS

// dialect has no locks: Write is alone from its beginning.
func dialect() sqlorders.Dialect {
	return sqlorders.Dialect{Rows: rows, Args: args, Lookup: lookup, Migrations: migrations}
}

// rows is a table of one JSON argument, an array of rows. Integers keep their 64 bits.
func rows(columns ...string) string {
	var b strings.Builder
	b.WriteString("(SELECT ")
	for i, c := range columns {
		name, _, _ := strings.Cut(c, " ")
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "value ->> %d AS %s", i, name)
	}
	b.WriteString(" FROM json_each($1)) AS m")
	return b.String()
}

// lookup keeps the order of the tables: SQLite does not reorder a CROSS JOIN, nor what stands right of a LEFT JOIN.
func lookup(join, table, condition string) string {
	return " " + join + " " + table + " ON " + condition
}

func args(columns ...any) ([]any, error) {
	var table [][]any
	for i, c := range columns {
		switch c := c.(type) {
		case []int64:
			table = grow(table, i, c)
		case []string:
			table = grow(table, i, c)
		default:
			return nil, fmt.Errorf("sqlite: no column of %T", c)
		}
	}
	b, err := json.Marshal(table)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return []any{string(b)}, nil
}

// grow appends one column to the rows.
func grow[T any](table [][]any, column int, values []T) [][]any {
	if column == 0 {
		table = make([][]any, len(values))
	}
	for i, v := range values {
		table[i] = append(table[i], v)
	}
	return table
}
