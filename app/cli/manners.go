package cli

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-io/sluice/app/spelling"
)

// Mannered gives cmd and everything below it the manners of this package, and returns it.
func Mannered(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(wrongFlag)
	for _, sub := range cmd.Commands() {
		Mannered(sub)
	}
	return cmd
}

// Args demands exactly these arguments, and names them.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case len(given) == len(names):
			return nil
		case len(names) == 0:
			return wrong(cmd, fmt.Sprintf("%s takes no argument, not %q; what is not an argument is a flag", cmd.CommandPath(), given[0]))
		case len(names) == 1:
			return wrong(cmd, fmt.Sprintf("%s takes one argument, %s, not %d", cmd.CommandPath(), names[0], len(given)))
		}
		return wrong(cmd, fmt.Sprintf("%s takes %d arguments, %s, not %d", cmd.CommandPath(), len(names), strings.Join(names, " and "), len(given)))
	}
}

func wrongFlag(cmd *cobra.Command, err error) error {
	text := err.Error()
	var none *pflag.NotExistError
	if errors.As(err, &none) {
		word := none.GetSpecifiedName()
		if letters := none.GetSpecifiedShortnames(); letters != "" {
			word, _, _ = strings.Cut(letters, "=") // one dash too few
		}
		if cmd.Flags().Lookup(word) != nil {
			text += "; did you mean --" + word + "?"
		} else if name := spelling.Nearest(word, flagNames(cmd)); name != "" {
			text += "; did you mean --" + name + "?"
		}
	}
	return wrong(cmd, text)
}

// flagNames are the flags that cmd takes, but for those that are kept out of its help.
func flagNames(cmd *cobra.Command) iter.Seq[string] {
	return func(yield func(string) bool) {
		more := true
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			more = more && (f.Hidden || yield(f.Name))
		})
	}
}
