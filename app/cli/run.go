package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/exit"
)

// Failure is what a command with --json prints in place of its facts.
type Failure struct {
	Error  string  `json:"error"`
	Faults []Fault `json:"faults,omitempty"` // each thing that is wrong with a document, when the failure is about one
}

// Fault is one thing that is wrong, and where.
type Fault struct {
	Path  string `json:"path"` // of the field, or the setting's name
	From  string `json:"from,omitempty"`
	Error string `json:"error"`
}

// Run runs the command that args name and returns the exit code. What it fails with goes to
// errOut in words, or to out as a Failure when JSON was asked for; faults tells what an
// error knows in particular. A command that has answered already, on out or by [exit.Said],
// is not answered for.
func Run(ctx context.Context, root *cobra.Command, args []string, out, errOut io.Writer, faults func(error) []Fault) int {
	answered := &counted{to: out}
	root.SetOut(answered)
	root.SetErr(errOut)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	text := err.Error()
	switch {
	case text == "":
	case answered.bytes == 0 && wantsJSON(cmd, args):
		failure := Failure{Error: text, Faults: faults(err)}
		if werr := PrintJSON(out, failure); werr != nil {
			fmt.Fprintln(errOut, text)
		}
	default:
		fmt.Fprintln(errOut, text)
	}
	return exit.Of(err)
}

// PrintJSON is how every command prints its facts.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// wantsJSON reports whether cmd was asked for JSON on its output. Of a command line that
// could not be read, the word itself asks.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	f := cmd.Flags().Lookup("json")
	switch {
	case f == nil:
		return slices.Contains(args, "--json")
	case f.Value.Type() == "bool":
		return f.Value.String() == "true" || !f.Changed && slices.Contains(args, "--json")
	}
	return f.Value.String() == "-" // of a command whose JSON goes into a file
}

// counted tells whether anything was written.
type counted struct {
	to    io.Writer
	bytes int
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += n
	return n, err
}
