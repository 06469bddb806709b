package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Code(exit.Usage, fmt.Errorf("%s takes no argument, not %q; settings are flags, see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath()))
	}
	return nil
}

func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Code(exit.Usage, fmt.Errorf("%s takes one argument: %s", cmd.CommandPath(), name))
		}
		return nil
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
		for _, name := range config.UnknownVariables(os.Environ(), otherVariables...) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is set but is no setting; `sluice config print` lists them\n", name)
		}
		if err != nil {
			return c, exit.Code(exit.Usage, err)
		}
		return c, nil
	}
}

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and print settings", Example: "  sluice config check sluice.yaml"}
	check := &cobra.Command{
		Use: "check FILE", Short: "All faults of a settings file at once", Args: oneArg("FILE"),
		Example: "  sluice config check sluice.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(config.Sources{File: args[0], Env: os.LookupEnv})
			return checked(cmd, c, err)
		},
	}
	check.Flags().Bool("json", false, "print facts as JSON")
	show := &cobra.Command{
		Use: "print", Short: "Effective settings and where each came from; secrets are masked", Args: noArgs,
		Example: "  sluice config print --config sluice.yaml",
	}
	show.Flags().Bool("json", false, "print facts as JSON")
	load := settings(show)
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if perr := printSettings(cmd, c); perr != nil {
			return perr
		}
		return err
	}
	cmd.AddCommand(check, show)
	return cmd
}

func checked(cmd *cobra.Command, c *config.Config, err error) error {
	asJSON, _ := cmd.Flags().GetBool("json")
	var faults config.Faults
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exit.Code(exit.Usage, err)
	case err != nil && !errors.As(err, &faults):
		return exit.Code(exit.No, err) // no YAML
	}
	switch {
	case asJSON:
		type fault struct {
			Setting string `json:"setting"`
			From    string `json:"from,omitempty"`
			Message string `json:"message"`
		}
		list := []fault{}
		for _, f := range faults {
			list = append(list, fault{f.Setting, f.Origin, f.Problem})
		}
		if err := printJSON(cmd, map[string]any{"ok": len(faults) == 0, "errors": list}); err != nil {
			return err
		}
	case len(faults) == 0:
		mode := "production"
		if c.IsEmbedded() {
			mode = "embedded"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "ok: %s\n", mode)
	}
	if len(faults) == 0 {
		return nil
	}
	if asJSON {
		return exit.Code(exit.No, errors.New(""))
	}
	return exit.Code(exit.No, faults)
}

func printSettings(cmd *cobra.Command, c *config.Config) error {
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return printJSON(cmd, c.Print())
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM")
	for _, s := range c.Print() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	return w.Flush()
}

func printJSON(cmd *cobra.Command, v any) error {
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the order database's schema up to date", Args: noArgs,
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
				return exit.Code(exit.Usage, fmt.Errorf("data.dir: %w", err))
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
