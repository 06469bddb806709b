package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
)

// program has one command that fails, one that has answered before it does, and one that
// has said all that there is to say.
func program() *cobra.Command {
	fail := func(say string, err error) *cobra.Command {
		c := &cobra.Command{Use: strings.Fields(say + " fail")[0], Short: "x", Args: cli.Args(), RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.OutOrStdout(), say)
			return err
		}}
		c.Flags().Bool("json", false, "")
		return c
	}
	return cli.Mannered(cli.Group("program", "x", "program",
		fail("", exit.Code(exit.Away, errors.New("nobody <there>"))), fail("half", errors.New("broken off")), fail("{}", exit.Said(exit.No))))
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		line, out, errOut string
		code              int
	}{
		{"fail", "", "nobody <there>\n", 3},
		{"fail --json", "{\n  \"error\": \"nobody <there>\",\n  \"faults\": [\n    {\n      \"path\": \"$\",\n      \"error\": \"x\"\n    }\n  ]\n}\n", "", 3},
		{"fail --json=false", "", "nobody <there>\n", 3},
		{"half --json", "half", "broken off\n", 1}, // one value on standard output, whatever happens
		{"{} --json", "{}", "", 1},
		{"fail a", "", "program fail takes no argument, not \"a\"; what is not an argument is a flag\nsee `program fail --help`\n", 2},
		{"fail -json", "", "unknown shorthand flag: 'j' in -json; did you mean --json?\nsee `program fail --help`\n", 2},
		{"fial", "", "program has no command \"fial\"; did you mean fail?\nsee `program --help`\n", 2},
	} {
		var out, errOut bytes.Buffer
		code := cli.Run(t.Context(), program(), strings.Fields(c.line), &out, &errOut, func(error) []cli.Fault { return []cli.Fault{{Path: "$", Error: "x"}} })
		if out.String() != c.out || errOut.String() != c.errOut || code != c.code {
			t.Errorf("%s: exit code %d\nout: %q\nerr: %q\nwant %d, %q, %q", c.line, code, out.String(), errOut.String(), c.code, c.out, c.errOut)
		}
	}
}
