// Command sluice is the access layer of a flash sale: `sluice serve` runs it, the other
// commands publish activities, push rules, make keys and prove a sale. Each has --help
// with an example; exit code 0 is done, 1 the answer is no, 2 wrong use, 3 a dependency
// is away.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/exit"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := interruptible()
	defer stop()
	root := newRoot()
	if err := root.ExecuteContext(ctx); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, text)
		}
		return exit.Of(err)
	}
	return 0
}

// interruptible ends its context at the first SIGTERM or Ctrl-C. A second one exits at once.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "stopped at once")
		os.Exit(1)
	}()
	return ctx, cancel
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "The access layer of a flash sale",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.Code(exit.Usage, fmt.Errorf("%w\nsee `%s --help`", err, c.CommandPath()))
	})
	root.AddCommand(commands()...)
	refuseUnknown(root)
	return root
}

// refuseUnknown makes a word that names no command wrong use, at every level; cobra
// would print the help and call it done.
func refuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
	if cmd.Runnable() || !cmd.HasSubCommands() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
		for _, s := range cmd.SuggestionsFor(args[0]) {
			text += "; did you mean " + s + "?"
		}
		return exit.Code(exit.Usage, fmt.Errorf("%s\nsee `%s --help`", text, cmd.CommandPath()))
	}
}
