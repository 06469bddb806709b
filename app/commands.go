package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/demo"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/ticketcmd"
)

// commands are all of them; each is built where it lives.
func commands() []*cobra.Command {
	env := ticketcmd.Env{Now: time.Now, Random: rand.Reader, Getenv: os.Getenv}
	return []*cobra.Command{
		newServe(), demo.Command(demo.Env{Getenv: os.Getenv}), newConfig(), newActivity(), newRules(), newMigrate(), newReconcile(),
		ticketcmd.NewTicket(env), ticketcmd.NewKey(env),
	}
}

// otherVariables are environment variables of ours that are no settings.
var otherVariables = []string{
	"SLUICE_SERVERS_DIR", "SLUICE_SERVERS_PORT_OFFSET", "SLUICE_CLUSTER_REPLICAS", "SLUICE_ADMIN_TOKEN_FILE", "SLUICE_ADMIN", "SLUICE_STOCK", "SLUICE_CONFIG",
}

// settings adds every setting as a flag, and returns what loads them.
func settings(cmd *cobra.Command) func() (*config.Config, error) {
	return settingsIn(cmd, cmd.Flags())
}

// settingsIn is settings for flags that subcommands share.
func settingsIn(cmd *cobra.Command, flags *pflag.FlagSet) func() (*config.Config, error) {
	file := flags.String("config", "", "YAML file of settings")
	embeddedPublic := flags.Bool("embedded-public", false, "let an embedded service listen beyond loopback")
	for _, s := range config.Describe() {
		if s.Name == "embedded_public" {
			continue
		}
		flags.String(s.Name, s.Value, s.Doc+" ("+s.Origin+")")
	}
	return func() (*config.Config, error) {
		given := map[string]string{}
		for _, s := range config.Describe() {
			if f := flags.Lookup(s.Name); f != nil && f.Changed {
				given[s.Name] = f.Value.String()
			}
		}
		if *embeddedPublic {
			given["embedded_public"] = "true"
		}
		path := *file
		if path == "" {
			path = os.Getenv("SLUICE_CONFIG")
		}
		c, err := config.Load(config.Sources{File: path, Env: os.LookupEnv, Flags: given})
		warnOfVariables(cmd)
		if err != nil {
			return c, exit.Code(exit.Usage, err)
		}
		return c, nil
	}
}

// warnOfVariables says which variables that look like settings are none, and returns that.
func warnOfVariables(cmd *cobra.Command) []string {
	environ := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "SLUICE_TEST_") // where the tests find their servers
	})
	warnings := config.UnknownVariables(environ, otherVariables...)
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
	return warnings
}

func newConfig() *cobra.Command {
	check := &cobra.Command{
		Use: "check FILE", Short: "All faults of a settings file at once", Args: cli.Args("FILE"),
		Example: "  sluice config check sluice.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(config.Sources{File: args[0], Env: os.LookupEnv})
			return checked(cmd, args[0], c, err)
		},
	}
	check.Flags().Bool("json", false, "print facts as JSON")
	show := &cobra.Command{
		Use: "print", Short: "Effective settings and where each came from; secrets are masked", Args: cli.Args(),
		Example: "  sluice config print --config sluice.yaml",
	}
	show.Flags().Bool("json", false, "print facts as JSON")
	load := settings(show)
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		return printSettings(cmd, c, err)
	}
	return cli.Group("config", "Check and print settings", "  sluice config check sluice.yaml\n  sluice config print --json", check, show)
}

// settingsVerdict is what `config check --json` says: of a bad file what every failure says.
type settingsVerdict struct {
	OK bool `json:"ok"`
	*cli.Failure
	Warnings []string `json:"warnings"`
}

// checked says what a load found. A file that cannot be read is wrong use; one that is no
// YAML is checked, and wrong.
func checked(cmd *cobra.Command, file string, c *config.Config, err error) error {
	var unreadable *fs.PathError
	if errors.As(err, &unreadable) {
		return exit.Code(exit.Usage, err)
	}
	unknown := warnOfVariables(cmd)
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		answer := settingsVerdict{OK: err == nil, Warnings: append([]string{}, unknown...)}
		if err != nil {
			answer.Failure = &cli.Failure{Error: err.Error(), Faults: faultsOf(err)}
			if answer.Faults == nil {
				answer.Faults = []cli.Fault{{From: "file " + file, Error: err.Error()}} // of the whole
			}
		}
		if perr := cli.PrintJSON(cmd.OutOrStdout(), answer); perr != nil || err == nil {
			return perr
		}
		return exit.Said(exit.No)
	}
	if err != nil {
		return exit.Code(exit.No, err)
	}
	mode := "production"
	if c.IsEmbedded() {
		mode = "embedded"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ok: %s\n", mode)
	return nil
}

// printSettings prints what is in effect also when it is wrong, and then why: settled is
// the error of the load. With --json that is an object with the faults in place of the list.
func printSettings(cmd *cobra.Command, c *config.Config, settled error) error {
	var faults config.Faults
	if settled != nil && !errors.As(settled, &faults) {
		return settled // nothing was read
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		if settled == nil {
			return cli.PrintJSON(cmd.OutOrStdout(), c.Print())
		}
		answer := struct {
			cli.Failure
			Settings []config.Setting `json:"settings"`
		}{cli.Failure{Error: settled.Error(), Faults: faultsOf(settled)}, c.Print()}
		if err := cli.PrintJSON(cmd.OutOrStdout(), answer); err != nil {
			return err
		}
		return exit.Said(exit.Of(settled))
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM")
	for _, s := range c.Print() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return settled
}

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the order database's schema up to date", Args: cli.Args(),
		Example: "  sluice migrate --orders postgres://sluice:…@127.0.0.1:5432/sluice",
	}
	load := settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		if c.Orders == config.Embedded {
			if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
				return unusable(c.DataDir, err)
			}
		}
		orders, err := openOrders(cmd.Context(), c)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "the schema is up to date")
		return orders.Close()
	}
	return cmd
}
