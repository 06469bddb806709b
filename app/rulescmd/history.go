package rulescmd

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/rules"
)

// entry is one document that the source holds or held.
type entry struct {
	At      time.Time `json:"at,omitzero"` // when it was published; zero: the source forgot
	By      string    `json:"by,omitempty"`
	Version int64     `json:"version,omitempty"` // 0: it was never valid
	Hash    string    `json:"hash,omitempty"`
	Comment string    `json:"comment,omitempty"`
	Error   string    `json:"error,omitempty"`
	bundle  *rules.Bundle
}

// maxHistory is how far back a rollback looks.
const maxHistory = 50

func (c *commands) history() *cobra.Command {
	var (
		asJSON bool
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the bundle in force and former ones, newest first",
		Long: `List what the source holds and remembers, newest first: the present document, then those before it. Nacos
remembers every change (for 30 days, as it is shipped); beside a file is kept what "rules push" wrote, and
what it found there.

AT is when the document was published, BY who did it, as far as the source knows: the user that Nacos knows,
else the one that ran "rules push"; "-" otherwise. Of a file that was edited by hand AT is when it was written.`,
		Example: "  sluice rules history --limit 5",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxHistory {
				return exit.Code(exit.Usage, fmt.Errorf("--limit must be in 1..%d", maxHistory))
			}
			list, err := c.past(cmd.Context(), limit)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "VERSION\tAT\tBY\tHASH\tCOMMENT")
			for _, e := range list {
				at, by := "-", e.By
				if !e.At.IsZero() {
					at = e.At.Format(time.RFC3339)
				}
				if by == "" {
					by = "-"
				}
				fmt.Fprintf(t, "%d\t%s\t%s\t%.19s\t%s%s\n", e.Version, at, by, e.Hash, e.Comment, e.Error)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the facts as JSON")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many")
	return cmd
}

// past reads the history, the present document first; neighbours with the same content are one entry.
func (c *commands) past(ctx context.Context, limit int) ([]entry, error) {
	_, src, done, err := c.open()
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := src.History(ctx, limit)
	if err != nil {
		return nil, coded(err)
	}
	entries := []entry{}
	for i, p := range list {
		if i > 0 && string(p.Raw) == string(list[i-1].Raw) {
			entries[len(entries)-1].At, entries[len(entries)-1].By = p.At, p.By // it was there since then
			continue
		}
		e := entry{At: p.At, By: p.By}
		if b, _, err := rules.Decode(p.Raw); err != nil {
			e.Error = "not a valid bundle"
		} else {
			e.Version, e.Hash, e.Comment, e.bundle = b.Version, b.Hash(), b.Comment, b
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// former finds the newest document of that version.
func (c *commands) former(ctx context.Context, version int64) (*rules.Bundle, error) {
	list, err := c.past(ctx, maxHistory)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.bundle != nil && e.Version == version {
			return e.bundle, nil
		}
	}
	return nil, exit.Code(exit.No, fmt.Errorf("the source remembers no version %d; see sluice rules history", version))
}
