package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
)

// adminFlags find a running instance: flags, then the environment, then the files that
// a running service leaves in its data directory.
type adminFlags struct{ url, tokenFile, dataDir string }

func (a *adminFlags) add(cmd *cobra.Command) {
	a.find(cmd)
	dir := os.Getenv("SLUICE_DATA_DIR")
	if dir == "" {
		dir = ".sluice"
	}
	cmd.PersistentFlags().StringVar(&a.dataDir, "data.dir", dir, "data directory of the running instance")
	cmd.PersistentFlags().Bool("json", false, "print facts as JSON")
}

// find adds the flags that name a running instance.
func (a *adminFlags) find(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&a.url, "admin", os.Getenv("SLUICE_ADMIN"), "admin address of a running instance; default: <data.dir>/ready.json")
	cmd.PersistentFlags().StringVar(&a.tokenFile, "admin-token-file", os.Getenv("SLUICE_ADMIN_TOKEN_FILE"), "file with an operator token; default: <data.dir>/admin.token")
}

// resolve returns the base URL and the token.
func (a *adminFlags) resolve() (base, token string, err error) {
	base = a.url
	if base == "" {
		path := filepath.Join(a.dataDir, readyFile)
		body, err := os.ReadFile(path)
		if err != nil {
			return "", "", cli.NotFound(path, err)
		}
		var line readyLine
		if err := json.Unmarshal(body, &line); err != nil {
			return "", "", exit.Code(exit.Away, fmt.Errorf("%s: %w", path, err))
		}
		base = line.Admin
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	file := a.tokenFile
	if file == "" {
		file = filepath.Join(a.dataDir, adminTokenFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", exit.Code(exit.Usage, fmt.Errorf("admin token: %w; give --admin-token-file F", err))
	}
	return strings.TrimRight(base, "/"), strings.TrimSpace(string(text)), nil
}

// adminAnswer is what an admin call said no with.
type adminAnswer struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  string `json:"detail"`
	Errors  []struct {
		Path    string `json:"path"`
		Message string `json:"message"`
	} `json:"errors"`
}

func (a adminAnswer) Error() string {
	var b strings.Builder
	for _, e := range a.Errors {
		if e.Path != "" {
			b.WriteString(e.Path + ": ")
		}
		b.WriteString(e.Message + "\n")
	}
	if b.Len() > 0 {
		return strings.TrimRight(b.String(), "\n")
	}
	if a.Detail != "" {
		return a.Detail
	}
	return a.Code + ": " + a.Message
}

// call does one admin call. exit code 3: nobody answers, 1: the answer is no.
func (a *adminFlags) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	base, token, err := a.resolve()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, exit.Code(exit.Usage, err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, exit.Code(exit.Away, fmt.Errorf("admin API: %w", err))
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return nil, exit.Code(exit.Away, fmt.Errorf("admin API: %w", err))
	}
	if res.StatusCode/100 == 2 {
		return answer, nil
	}
	if res.StatusCode == http.StatusUnauthorized {
		return nil, exit.Code(exit.Usage, fmt.Errorf("the admin token is refused by %s; give the right --admin-token-file", base))
	}
	var no adminAnswer
	if json.Unmarshal(answer, &no) != nil || no.Code == "" {
		no = adminAnswer{Code: res.Status, Message: string(answer)}
	}
	if no.Code == "DEPENDENCY_UNAVAILABLE" {
		return nil, exit.Code(exit.Away, no)
	}
	return nil, exit.Code(exit.No, no)
}

func newActivity() *cobra.Command {
	var admin adminFlags
	publish := &cobra.Command{
		Use: "publish FILE", Short: "Put an activity on sale", Args: cli.Args("FILE (or - for standard input)"),
		Example: "  sluice activity publish sale.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := readInput(cmd.InOrStdin(), args[0])
			if err != nil {
				return exit.Code(exit.Usage, err)
			}
			return admin.print(cmd, http.MethodPost, "/admin/v1/activities", doc, func(a activityFacts) string {
				return fmt.Sprintf("activity %s version %d is published, path %s", a.ID, a.Version, a.PathID)
			})
		},
	}
	end := &cobra.Command{
		Use: "end ID", Short: "End an activity for good", Args: cli.Args("ID"), Example: "  sluice activity end 10001",
		RunE: func(cmd *cobra.Command, args []string) error {
			return admin.print(cmd, http.MethodPost, "/admin/v1/activities/"+args[0]+"/end", nil, func(a activityFacts) string { return "activity " + a.ID + " is ended" })
		},
	}
	show := &cobra.Command{
		Use: "show ID", Short: "One activity as published", Args: cli.Args("ID"), Example: "  sluice activity show 10001",
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := admin.call(cmd.Context(), http.MethodGet, "/admin/v1/activities/"+args[0], nil)
			if err != nil {
				return fmt.Errorf("activity %s: %w", args[0], err)
			}
			return printIndented(cmd, body)
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "Every activity", Args: cli.Args(), Example: "  sluice activity list",
		RunE: func(cmd *cobra.Command, _ []string) error { return admin.list(cmd) },
	}
	cmd := cli.Group("activity", "Publish, list, show and end activities", "  sluice activity publish sale.json\n  sluice activity list --json", publish, list, show, end)
	admin.add(cmd)
	return cmd
}

type activityFacts struct {
	ID      string    `json:"activity_id"`
	Version int64     `json:"activity_version"`
	PathID  string    `json:"path_id"`
	Name    string    `json:"name"`
	Opens   time.Time `json:"opens_at"`
	Closes  time.Time `json:"closes_at"`
	Ended   bool      `json:"ended"`
}

func (a *adminFlags) print(cmd *cobra.Command, method, path string, body []byte, words func(activityFacts) string) error {
	answer, err := a.call(cmd.Context(), method, path, body)
	if err != nil {
		return err
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return printIndented(cmd, answer)
	}
	var facts activityFacts
	if err := json.Unmarshal(answer, &facts); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), words(facts))
	return nil
}

func (a *adminFlags) list(cmd *cobra.Command) error {
	answer, err := a.call(cmd.Context(), http.MethodGet, "/admin/v1/activities", nil)
	if err != nil {
		return err
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return printIndented(cmd, answer)
	}
	var all struct {
		Activities []activityFacts `json:"activities"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ACTIVITY\tVERSION\tPATH\tOPENS\tCLOSES\tENDED\tNAME")
	for _, f := range all.Activities {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%t\t%s\n", f.ID, f.Version, f.PathID, f.Opens.Format(time.RFC3339), f.Closes.Format(time.RFC3339), f.Ended, f.Name)
	}
	return w.Flush()
}

func printIndented(cmd *cobra.Command, body []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, body, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(cmd.OutOrStdout())
	return err
}

func readInput(in io.Reader, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(in, 1<<20))
	}
	body, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist", path)
	}
	return body, err
}
