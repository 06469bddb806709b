package rulescmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/rules"
)

// pushFlags are common to everything that publishes.
type pushFlags struct {
	wait time.Duration
	json bool
}

func (f *pushFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.wait, "wait", 10*time.Second, "how long to wait for every live instance; 0: do not wait")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the facts as JSON")
}

// pushed is what a push says.
type pushed struct {
	Version      int64          `json:"version"`
	Hash         string         `json:"hash"`
	From         int64          `json:"from_version"`
	Source       string         `json:"source"`
	Changes      []rules.Change `json:"changes"`
	Warnings     rules.Faults   `json:"warnings,omitempty"`
	Acknowledged int            `json:"acknowledged"`      // instances; 0: none is reachable
	TookMS       int64          `json:"took_ms"`           // from the publish to the last acknowledgement
	Unasked      string         `json:"unasked,omitempty"` // why no instance could be asked
}

// refused is what a push says that ended badly: what it would have changed, and why not.
type refused struct {
	cli.Failure
	pushed
}

func (c *commands) push() *cobra.Command {
	var (
		flags   pushFlags
		canary  float64
		bump    bool
		confirm bool
	)
	cmd := &cobra.Command{
		Use:   "push FILE",
		Short: "Check a bundle, publish it if nobody was faster, and wait until it is in force",
		Long: `Check a bundle, compare it with the current one as every instance will, publish it by compare-and-set on
the current version, and wait until every live instance runs it. Of two editors the second gets a
conflict with the difference. With no live instance the push ends after it was read back.`,
		Example: `  sluice rules push rules.json
  sluice rules push --bump --confirm rules.json
  sluice rules push --canary 10 rules.json`,
		Args: cli.Args("FILE (or - for standard input)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := readFile(cmd, args[0])
			if err != nil {
				return err
			}
			isCanary := cmd.Flags().Changed("canary")
			if isCanary && !(canary > 0 && canary <= 100) {
				return exit.Code(exit.Usage, errors.New("--canary must be above 0 and at most 100"))
			}
			return c.publish(cmd, flags, func(current *rules.Bundle) ([]byte, error) {
				return composed(raw, current, composition{canary: canary, isCanary: isCanary, bump: bump, confirm: confirm})
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().Float64Var(&canary, "canary", 0, "percentage of the instances that run FILE; the others keep what they have")
	cmd.Flags().BoolVar(&bump, "bump", false, "give FILE the version after the current one")
	cmd.Flags().BoolVar(&confirm, "confirm", false, "confirm a change that looks like a slip of the hand")
	return cmd
}

type composition struct {
	canary                  float64
	isCanary, bump, confirm bool
}

// composed makes the document to publish. Without any wish it is the file, byte for byte.
func composed(raw []byte, current *rules.Bundle, c composition) ([]byte, error) {
	b, _, err := rules.Decode(raw)
	if err != nil {
		return nil, exit.Code(exit.No, err)
	}
	if !c.isCanary && !c.bump && !c.confirm {
		return raw, nil
	}
	switch {
	case c.isCanary && current == nil:
		return nil, exit.Code(exit.No, errors.New("there is no bundle in force beside which a canary could run"))
	case c.isCanary:
		b = b.WithCanary(current, c.canary, fmt.Sprintf("canary of %v %%: %s", c.canary, b.Comment))
	case c.bump && current != nil:
		b = b.At(current.Version + 1)
	}
	if c.confirm {
		b = b.Confirmed()
	}
	return b.Indent(), nil
}

// publish reads the current document, makes the next one from it, judges, writes and waits.
func (c *commands) publish(cmd *cobra.Command, flags pushFlags, make func(current *rules.Bundle) ([]byte, error)) error {
	ctx := cmd.Context()
	s, src, done, err := c.open()
	if err != nil {
		return err
	}
	defer done()
	if s.AdminURL != "" { // whoever would be asked afterwards must let us ask: nothing is published before that
		if _, err := s.fleet(ctx); wrongUse(err) {
			return err
		}
	}
	before, err := current(ctx, src)
	if err != nil {
		return err
	}
	old, broken, err := c.running(ctx, before)
	if err != nil {
		return err
	}
	next, err := make(old)
	if err != nil {
		return err
	}
	judged := before
	if broken && old != nil {
		judged = old.Encode()
	}
	b, warnings, err := rules.Preview(judged, next)
	out := pushed{Source: src.Name(), Warnings: warnings, Changes: []rules.Change{}}
	if b != nil {
		out.Version, out.Hash = b.Version, b.Hash()
		if old != nil {
			out.From, out.Changes = old.Version, append(out.Changes, rules.Diff(old, b)...)
		}
	}
	if err != nil {
		return out.refuse(cmd, flags.json, "", exit.Code(exit.No, err))
	}
	start := time.Now()
	if old == nil || broken || old.Hash() != b.Hash() {
		if err := src.Publish(ctx, before, next); err != nil {
			why := out.overtaken(ctx, src, b, err)
			return out.refuse(cmd, flags.json, why, coded(err))
		}
	}
	out.Acknowledged, out.Unasked, err = s.wait(ctx, b.Version, flags.wait)
	out.TookMS = time.Since(start).Milliseconds()
	if err != nil && flags.json {
		return out.refuse(cmd, true, "", err)
	}
	if perr := out.print(cmd, flags.json); perr != nil {
		return perr
	}
	return err
}

// running is the bundle that instances run: what the source holds, or, when that is broken,
// the newest valid one before it. Nil: there was never a valid one.
func (c *commands) running(ctx context.Context, document []byte) (old *rules.Bundle, broken bool, err error) {
	if document == nil {
		return nil, false, nil
	}
	if old, _, err = rules.Decode(document); err == nil {
		return old, false, nil
	}
	list, err := c.past(ctx, maxHistory)
	if err != nil {
		return nil, true, err
	}
	for _, e := range list {
		if e.bundle != nil && (old == nil || e.Version > old.Version) {
			old = e.bundle
		}
	}
	return old, true, nil
}

// wait asks for acknowledgements where somebody can be asked; nobody is no failure.
func (s Settings) wait(ctx context.Context, version int64, within time.Duration) (n int, unasked string, err error) {
	if within <= 0 || s.AdminURL == "" {
		return 0, "", nil
	}
	n, err = s.acknowledged(ctx, version, within)
	var coded interface{ ExitCode() int }
	if err != nil && !errors.As(err, &coded) {
		return 0, err.Error(), nil
	}
	return n, "", err
}

func (p pushed) print(cmd *cobra.Command, asJSON bool) error {
	w := cmd.OutOrStdout()
	if asJSON {
		return cli.PrintJSON(w, p)
	}
	for _, c := range p.Changes {
		fmt.Fprintln(w, c)
	}
	for _, f := range p.Warnings {
		fmt.Fprintln(w, "warning", f)
	}
	if p.Unasked != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "no acknowledgement:", p.Unasked)
	}
	if p.Acknowledged == 0 {
		_, err := fmt.Fprintf(w, "version %d is published at %s and read back; no live instance was asked\n", p.Version, p.Source)
		return err
	}
	_, err := fmt.Fprintf(w, "version %d is in force on %d instances after %d ms\n", p.Version, p.Acknowledged, p.TookMS)
	return err
}

// refuse says why nothing is published, or not everywhere in force, and what it would have
// changed.
func (p pushed) refuse(cmd *cobra.Command, asJSON bool, why string, err error) error {
	if asJSON {
		failure := cli.Failure{Error: err.Error(), Faults: Faults(err)}
		if why != "" {
			failure.Error = why + ": " + failure.Error
		}
		if perr := cli.PrintJSON(cmd.OutOrStdout(), refused{failure, p}); perr != nil {
			return perr
		}
		return exit.Said(exit.Of(err))
	}
	if why != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), why+"; yours would change it so:")
	}
	for _, c := range p.Changes {
		fmt.Fprintln(cmd.ErrOrStderr(), " ", c)
	}
	return err
}

// overtaken looks at what was published meanwhile, and makes p the difference to that: the
// second editor sees what the first one did. "": the publish failed by itself.
func (p *pushed) overtaken(ctx context.Context, src governed, mine *rules.Bundle, err error) string {
	p.Changes = nil
	if !errors.Is(err, admission.ErrConflict) {
		return ""
	}
	raw, err := current(ctx, src)
	if err != nil || raw == nil {
		return ""
	}
	theirs, _, err := rules.Decode(raw)
	if err != nil {
		return ""
	}
	p.From, p.Changes = theirs.Version, rules.Diff(theirs, mine)
	return fmt.Sprintf("version %d was published meanwhile (%q)", theirs.Version, theirs.Comment)
}

// Faults are the places in a document that err is about.
func Faults(err error) []cli.Fault {
	var list rules.Faults
	if !errors.As(err, &list) {
		return nil
	}
	out := make([]cli.Fault, len(list))
	for i, f := range list {
		out[i] = cli.Fault{Path: f.Path, Error: f.Message}
	}
	return out
}

func (c *commands) rollback() *cobra.Command {
	var flags pushFlags
	cmd := &cobra.Command{
		Use:   "rollback VERSION",
		Short: "Publish a former bundle again, as the next version",
		Long: `Publish a former bundle again, as the version after the current one and with its policies' numbers
raised: time does not run backwards. A rollback confirms itself.`,
		Example: "  sluice rules rollback 41",
		Args:    cli.Args("VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || version < 1 {
				return exit.Code(exit.Usage, fmt.Errorf("%q is not a version", args[0]))
			}
			return c.publish(cmd, flags, func(current *rules.Bundle) ([]byte, error) {
				if current == nil {
					return nil, exit.Code(exit.No, errors.New("there is no valid bundle to roll back from"))
				}
				former, err := c.former(cmd.Context(), version)
				if err != nil {
					return nil, err
				}
				return former.Next(current, fmt.Sprintf("rollback to version %d", version)).Confirmed().Indent(), nil
			})
		},
	}
	flags.add(cmd)
	return cmd
}

func (c *commands) promote() *cobra.Command {
	var flags pushFlags
	cmd := &cobra.Command{
		Use:     "promote",
		Short:   "Give the canary's bundle to every instance",
		Example: "  sluice rules promote",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.publish(cmd, flags, func(current *rules.Bundle) ([]byte, error) {
				if current == nil || current.Canary == nil {
					return nil, exit.Code(exit.No, errors.New("there is no canary to promote"))
				}
				return current.Canary.Bundle.Next(current, "promoted: "+current.Canary.Bundle.Comment).Confirmed().Indent(), nil
			})
		},
	}
	flags.add(cmd)
	return cmd
}
