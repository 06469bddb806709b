package rulescmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/rules"
)

// fleetStatus is GET /admin/v1/rules/status: every live instance as the fleet registry has it.
type fleetStatus struct {
	Version   int64          `json:"version"`
	Drift     bool           `json:"drift"`
	Instances []rules.Status `json:"instances"`
}

var errNoAdmin = errors.New("no running instance found; start `sluice serve`, or give --admin HOST:PORT and --admin-token-file F")

const adminTimeout = 3 * time.Second

func (s Settings) get(ctx context.Context, path string) ([]byte, error) {
	switch {
	case s.AdminURL == "" && s.NoAdmin != nil:
		return nil, s.NoAdmin
	case s.AdminURL == "":
		return nil, errNoAdmin
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	base := s.AdminURL
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.AdminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin listener: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8*rules.MaxDocument))
	if err != nil {
		return nil, fmt.Errorf("admin listener: %w", err)
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return nil, exit.Code(exit.Usage, fmt.Errorf("the admin token is refused by %s; give the right --admin-token-file", base))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("admin listener: GET %s: HTTP %d", path, resp.StatusCode)
	}
	return body, nil
}

func (s Settings) fleet(ctx context.Context) (fleetStatus, error) {
	var f fleetStatus
	body, err := s.get(ctx, "/admin/v1/rules/status")
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return f, fmt.Errorf("admin listener: %w", err)
	}
	return f, nil
}

// wrongUse reports an error that no waiting mends, such as a token that is refused.
func wrongUse(err error) bool {
	return err != nil && exit.Of(err) == exit.Usage
}

// inForce is the bundle that a running instance has in force.
func (s Settings) inForce(ctx context.Context) (*rules.Bundle, error) {
	body, err := s.get(ctx, "/admin/v1/rules/bundle")
	if err != nil {
		return nil, err
	}
	b, _, err := rules.Decode(body)
	return b, err
}

func (c *commands) status() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say which instance runs which rules; exit 1 when they differ",
		Long: `Say which instance runs which rules, and exit 1 when they do not all run the same (drift).

CONFIRMED (age_ms with --json) is how long ago the instance last saw at the source exactly the rules that it
runs. It looks every 3 s, so up to 5s is normal. Above 30s it is marked with a "!" and is alarming: either the
instance does not reach its source, and a push would not reach it, or the source holds rules that it refuses,
and ERROR says why. The rules in force stay meanwhile. What an instance refuses stands there a second or two
after it was written.

CANARY says whether the instance runs the canary's bundle: while some do, the hashes differ, and that is drift.

Without a running instance in <data.dir> or at --admin the instances' table in the limiter store is read, where
limiter.redis names one.`,
		Example: "  sluice rules status\n  sluice rules status --json --admin http://127.0.0.1:8082",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.settings()
			if err != nil {
				return exit.Code(exit.Usage, err)
			}
			live := s.instances(cmd.Context())
			defer live.close()
			f, err := live.status(cmd.Context())
			if wrongUse(err) {
				return err
			}
			if err != nil {
				return exit.Code(exit.Away, err)
			}
			if asJSON {
				err = cli.PrintJSON(cmd.OutOrStdout(), f)
			} else {
				err = f.print(cmd.OutOrStdout())
			}
			if err == nil && f.Drift && asJSON {
				return exit.Said(exit.No)
			}
			if err == nil && f.Drift {
				return exit.Code(exit.No, errors.New("the instances do not run the same rules"))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the facts as JSON")
	return cmd
}

// alarmingAge is ten looks at the source: a restart of a server is over by then.
const alarmingAge = 30 * time.Second

func (f fleetStatus) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "INSTANCE\tVERSION\tHASH\tCANARY\tSOURCE\tCONFIRMED\tERROR")
	alarming := 0
	for _, i := range f.Instances {
		last := "-"
		if e := i.LastError; e != nil {
			last = fmt.Sprintf("version %d: %s: %s", e.Version, e.Path, e.Message)
		}
		canary := "-"
		if i.Canary {
			canary = "yes"
		}
		age := time.Duration(i.AgeMS) * time.Millisecond
		mark := ""
		if age > alarmingAge {
			mark = " !"
			alarming++
		}
		fmt.Fprintf(t, "%s\t%d\t%.19s\t%s\t%s\t%v ago%s\t%s\n", i.InstanceID, i.Version, i.Hash, canary, i.Source, age.Round(100*time.Millisecond), mark, last)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	word := "no drift"
	if f.Drift {
		word = "DRIFT"
	}
	if alarming > 0 {
		fmt.Fprintf(w, "! %d not confirmed by the source for %v: it is away, or holds rules that are refused; what is in force stays\n", alarming, alarmingAge)
	}
	_, err := fmt.Fprintf(w, "version %d, %d instances, %s\n", f.Version, len(f.Instances), word)
	return err
}
