package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/spelling"
)

// Group is a command that only holds others. By itself it is wrong use: its help, and what
// its subcommand was probably meant to be.
func Group(use, short, example string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: cobra.ArbitraryArgs,
		// The flags of a command that does not exist say nothing; its name does.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, args[0])
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s\n\n%s\n", cmd.Short, cmd.UsageString())
			return exit.Code(exit.Usage, fmt.Errorf("%s needs a subcommand", cmd.CommandPath()))
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

func unknown(cmd *cobra.Command, word string) error {
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), word)
	if name := meant(cmd, word); name != "" {
		text += "; did you mean " + name + "?"
	}
	return wrong(cmd, text)
}

// meant is the subcommand that word is a slip of, or the beginning of.
func meant(cmd *cobra.Command, word string) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if name := spelling.Nearest(word, slices.Values(names)); name != "" {
		return name
	}
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, word) }); i >= 0 {
		return names[i]
	}
	return ""
}

// wrong is wrong use of cmd, and where its right use is described.
func wrong(cmd *cobra.Command, text string) error {
	return exit.Code(exit.Usage, fmt.Errorf("%s\nsee `%s --help`", text, cmd.CommandPath()))
}
