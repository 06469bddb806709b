// Command sluice is the access layer of a flash sale: `sluice serve` runs it, the other
// commands publish activities, push rules, make keys and prove a sale. Each has --help
// with an example; exit code 0 is done, 1 the answer is no, 2 wrong use, 3 a dependency
// is away.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/rulescmd"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := interruptible()
	defer stop()
	return cli.Run(ctx, newRoot(), os.Args[1:], os.Stdout, os.Stderr, faultsOf)
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
	root := cli.Group("sluice", "The access layer of a flash sale", `  sluice serve                      a complete sale on this machine
  sluice demo                       simulated people buy on it, and a verdict
  sluice config check sluice.yaml   before it becomes a production service
  sluice rules status               which rules are in force, and where`, commands()...)
	root.Version = version()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, own := range root.Commands() { // of cobra's, which come without
		switch own.Name() {
		case "help":
			own.Example = "  sluice help rules push"
		case "completion":
			own.Example = "  sluice completion bash"
			for _, shell := range own.Commands() {
				shell.Example = "  sluice completion " + shell.Name() + " --help"
			}
		}
	}
	return cli.Mannered(root)
}

// faultsOf is what an error knows of single places in a document or in the settings.
func faultsOf(err error) []cli.Fault {
	var settings config.Faults
	if errors.As(err, &settings) {
		out := make([]cli.Fault, len(settings))
		for i, f := range settings {
			out[i] = cli.Fault{Path: f.Setting, From: f.Origin, Error: f.Problem}
		}
		return out
	}
	var answer adminAnswer
	if errors.As(err, &answer) {
		var out []cli.Fault
		for _, f := range answer.Errors {
			out = append(out, cli.Fault{Path: f.Path, Error: f.Message})
		}
		return out
	}
	return rulescmd.Faults(err)
}
