package sqlorders

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/sluice-io/sluice/app/admission"
)

// migration is one step of the schema. Steps are numbered from 1 without a gap and never change once released.
type migration struct {
	version    int64
	name, text string
	digest     string // SHA-256 of the text, hex
}

// Migrate brings the schema up to date in one transaction. Several processes may call it at once: they wait for each
// other. ErrConflict: the database has steps that this program does not know, or knows differently.
func (s *Store) Migrate(ctx context.Context) error {
	steps, err := readMigrations(s.dialect.Migrations)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	return s.write(ctx, "migrate", func(q Querier) error {
		if s.dialect.LockMigrations != "" {
			if _, err := q.Exec(ctx, s.dialect.LockMigrations); err != nil {
				return err
			}
		}
		if _, err := q.Exec(ctx, createMigrations); err != nil {
			return err
		}
		done := 0
		err := q.Query(ctx, selectMigrations, nil, func(scan Scan) error {
			var version int64
			var digest string
			if err := scan(&version, &digest); err != nil {
				return err
			}
			if done == len(steps) {
				return fmt.Errorf("the schema is at version %d, this program knows %d: use a newer one: %w", version, len(steps), admission.ErrConflict)
			}
			if step := steps[done]; step.version != version || step.digest != digest {
				return fmt.Errorf("schema version %d is not the %s of this program: %w", version, step.name, admission.ErrConflict)
			}
			done++
			return nil
		})
		if err != nil {
			return err
		}
		for _, step := range steps[done:] {
			if _, err := q.Exec(ctx, step.text); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			if _, err := q.Exec(ctx, insertMigration, step.version, step.name, step.digest); err != nil {
				return err
			}
		}
		return nil
	})
}

func readMigrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	steps := make([]migration, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil || version != int64(i+1) {
			return nil, fmt.Errorf("%s: want number %04d", name, i+1)
		}
		sum := sha256.Sum256(text)
		steps[i] = migration{version, path.Base(name), string(text), hex.EncodeToString(sum[:])}
	}
	return steps, nil
}
