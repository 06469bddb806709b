package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/exit"
)

// Env is what the command takes from the world around it.
type Env struct {
	Getenv func(name string) string
}

// Command is "sluice demo".
func Command(env Env) *cobra.Command {
	var (
		c        Config
		f        Flags
		jsonFile string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A whole sale by simulated people against running instances, with a verdict",
		Long: `Publish a sale of its own on running instances, send a crowd of simulated people, and judge what happened.

Most people join before the opening, some after it, some walk away; a hostile share forges, steals, replays,
tampers and hammers. Every answer is checked against the outcome table, and at the end the stock store and SQL
are counted by reservation. Exit code 1 on any violation, 3 when no instance answers.

Without --target the instance is the one whose ready.json stands in the data directory. People sign in with
sessions minted from --session-keys (or SLUICE_SESSION_KEYS, or the key set in the data directory), and with the
development sign-in where there is none.`,
		Example: `  sluice demo
  sluice demo --users 50000 --hostile 10 --json verdict.json
  sluice demo --target http://127.0.0.1:8080,http://127.0.0.1:9080 --admin http://127.0.0.1:8082 \
    --admin-token-file admin.token --session-keys session-keys.json`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Target, err = Find(f, env.Getenv); err != nil {
				return err
			}
			show, done := reporter(cmd.ErrOrStderr(), c.Stock, env.Getenv)
			c.Progress = show
			report, err := Run(cmd.Context(), c)
			done()
			if err != nil {
				return err
			}
			if jsonFile != "" {
				if err := writeJSON(cmd, jsonFile, report); err != nil {
					return exit.Code(exit.Usage, fmt.Errorf("--json: %w", err))
				}
			}
			if jsonFile != "-" {
				if err := report.Table(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			if !report.OK {
				return exit.Code(exit.No, fmt.Errorf("%d violations; the first: %s: %s", len(report.Violations), report.Violations[0].Rule, report.Violations[0].Example))
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Code(exit.Usage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	flags := cmd.Flags()
	flags.StringVar(&f.Targets, "target", "", "public address or URL of each instance, comma-separated; default the running one")
	flags.IntVar(&c.Users, "users", 5000, "simulated people")
	flags.Float64Var(&c.Hostile, "hostile", 5, "percent of them who cheat")
	flags.Int64Var(&c.Stock, "stock", 1000, "units on sale")
	flags.DurationVar(&c.OpensIn, "opens-in", 0, "from publishing to the opening; default 5s and a second for every 1,500 people")
	flags.DurationVar(&c.Timeout, "timeout", 10*time.Minute, "the most that the whole may take")
	flags.DurationVar(&c.Stall, "stall", 30*time.Second, "give up when nothing moves for so long after the opening")
	flags.Uint64Var(&c.Seed, "seed", 0, "makes the same crowd again; 0 draws one")
	flags.IntVar(&c.MaxInFlight, "max-in-flight", 64, "requests at once, besides 24 of people who come in")
	flags.StringVar(&jsonFile, "json", "", "write the verdict and every figure to this file; - is standard output, without the table")
	flags.StringVar(&f.Admin, "admin", "", "admin address; default the running instance's")
	flags.StringVar(&f.TokenFile, "admin-token-file", "", "operator token; default $SLUICE_ADMIN_TOKEN_FILE, then the data directory's")
	flags.StringVar(&f.SessionKeys, "session-keys", "", "key set that signs sessions; default $SLUICE_SESSION_KEYS, then the data directory's")
	flags.StringVar(&f.DataDir, "data.dir", "", "data directory of the running instance; default $SLUICE_DATA_DIR, then .sluice")
	return cmd
}

func writeJSON(cmd *cobra.Command, path string, report *Report) error {
	raw, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if path == "-" {
		_, err = cmd.OutOrStdout().Write(raw)
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}
