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
	Acknowledged int            `json:"acknowledged"`               // instances; 0: none is reachable
	Canary       *int           `json:"canary_instances,omitempty"` // how many of these run the canary's bundle, when there is one
	TookMS       int64          `json:"took_ms"`                    // from the publish to the last acknowledgement
	Unasked      string         `json:"unasked,omitempty"`          // why no instance could be asked
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
the current version, and wait until every live instance runs it: this version with this content. Of two
editors the second gets a conflict with the difference.

Instances are found by <data.dir>/ready.json or --admin, else in the limiter store when limiter.redis names
one. With no live instance the push ends after it was read back, and says why nobody was asked.

--bump numbers FILE above the current version, above what live instances run and above the greatest version
that the cluster has seen. --canary P gives FILE to P percent of the instances, always the same ones for the
same P, and says how many that are; the others keep what they have. --confirm means a change that looks like
a slip of the hand.`,
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
			return c.publish(cmd, flags, func(current *rules.Bundle, least int64) ([]byte, error) {
				return composed(raw, current, least, composition{canary: canary, isCanary: isCanary, bump: bump, confirm: confirm})
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().Float64Var(&canary, "canary", 0, "percentage of the instances that run FILE; the others keep what they have")
	cmd.Flags().BoolVar(&bump, "bump", false, "give FILE the version above all that are known")
	cmd.Flags().BoolVar(&confirm, "confirm", false, "confirm a change that looks like a slip of the hand")
	return cmd
}

type composition struct {
	canary                  float64
	isCanary, bump, confirm bool
}

// composed makes the document to publish. Without any wish it is the file, byte for byte.
func composed(raw []byte, current *rules.Bundle, least int64, c composition) ([]byte, error) {
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
	case c.bump && least > 1:
		b = b.At(least)
	}
	if c.confirm {
		b = b.Confirmed()
	}
	return b.Indent(), nil
}

// publish reads the current document, makes the next one from it, judges, writes and waits.
// make is given the current bundle, with the greatest version that anybody runs, and the least
// version that is above all of them.
func (c *commands) publish(cmd *cobra.Command, flags pushFlags, make func(current *rules.Bundle, least int64) ([]byte, error)) error {
	ctx := cmd.Context()
	s, src, done, err := c.open()
	if err != nil {
		return err
	}
	defer done()
	live := s.instances(ctx)
	defer live.close()
	fleet, err := live.status(ctx)
	if s.AdminURL != "" && wrongUse(err) { // whoever would be asked afterwards must let us ask: nothing is published before that
		return err
	}
	before, err := current(ctx, src)
	if err != nil {
		return err
	}
	old, broken, err := c.running(ctx, before)
	if err != nil {
		return err
	}
	mark := live.highWater(ctx)
	next, err := make(above(old, max(mark, fleet.Version)))
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
	want := targetOf(b)
	if err := fleet.preclude(want); err != nil {
		return out.refuse(cmd, flags.json, "", exit.Code(exit.No, fmt.Errorf("%w; %w", err, errBehind)))
	}
	if b.Version < mark {
		out.warn("$.version", "%d is below %d, which the cluster has seen: an instance that starts refuses it; --bump goes above", b.Version, mark)
	}
	out.untried(old, b, fleet)
	start := time.Now()
	if old == nil || broken || old.Hash() != b.Hash() {
		if err := src.Publish(ctx, before, next); err != nil {
			why := out.overtaken(ctx, src, b, err)
			return out.refuse(cmd, flags.json, why, coded(err))
		}
	}
	took, unasked, err := live.acknowledged(ctx, want, flags.wait)
	out.TookMS = time.Since(start).Milliseconds()
	out.took(b, took, unasked)
	if err != nil && flags.json {
		return out.refuse(cmd, true, "", err)
	}
	if err != nil {
		out.Acknowledged = 0 // not in force everywhere: the error says where not
		out.facts(cmd)
		return err
	}
	return out.print(cmd, flags.json)
}

// above is b as if it had the greatest version known, and the version after that. Nil stays
// nil.
func above(b *rules.Bundle, greatest int64) (*rules.Bundle, int64) {
	if b == nil {
		return nil, greatest + 1
	}
	raised := *b
	raised.Version = max(b.Version, greatest)
	return &raised, raised.Version + 1
}

func (p *pushed) warn(path, format string, args ...any) {
	p.Warnings = append(p.Warnings, rules.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// untried warns of a promotion of what no instance has run.
func (p *pushed) untried(old, next *rules.Bundle, fleet fleetStatus) {
	if old == nil || old.Canary == nil || next.Canary != nil || len(fleet.Instances) == 0 {
		return
	}
	if a, _ := fleet.judged(targetOf(old)); a.canary == 0 {
		p.warn("$.canary", "no instance of %d has run the canary of version %d", a.live, old.Version)
	}
}

// took notes how the instances took it.
func (p *pushed) took(b *rules.Bundle, a acknowledgement, unasked string) {
	p.Acknowledged, p.Unasked = a.running, unasked
	if b.Canary == nil || a.live == 0 {
		return
	}
	p.Canary = &a.canary
	if a.canary == 0 && a.running == a.live {
		p.warn("$.canary.percent", "%v %% of %d instances are none: the canary runs nowhere; raise the percentage", b.Canary.Percent, a.live)
	}
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

func (p pushed) print(cmd *cobra.Command, asJSON bool) error {
	w := cmd.OutOrStdout()
	if asJSON {
		return cli.PrintJSON(w, p)
	}
	p.facts(cmd)
	if p.Unasked != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "no acknowledgement:", p.Unasked)
	}
	if p.Acknowledged == 0 {
		_, err := fmt.Fprintf(w, "version %d is published at %s and read back; no live instance was asked\n", p.Version, p.Source)
		return err
	}
	if _, err := fmt.Fprintf(w, "version %d is in force on %d instances after %d ms\n", p.Version, p.Acknowledged, p.TookMS); err != nil || p.Canary == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "the canary runs on %d of %d instances\n", *p.Canary, p.Acknowledged)
	return err
}

// facts prints what changes, and what is odd about it.
func (p pushed) facts(cmd *cobra.Command) {
	w := cmd.OutOrStdout()
	printChanges(w, "", p.Changes)
	for _, f := range p.Warnings {
		fmt.Fprintln(w, "warning", f)
	}
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
	printChanges(cmd.ErrOrStderr(), "  ", p.Changes)
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
			return c.publish(cmd, flags, func(current *rules.Bundle, _ int64) ([]byte, error) {
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
		Use:   "promote",
		Short: "Give the canary's bundle to every instance",
		Long: `Give the canary's bundle to every instance, as the next version, and say what that changes for those that did
not run it. That no instance has run the canary is said, and no hindrance.`,
		Example: "  sluice rules promote",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.publish(cmd, flags, func(current *rules.Bundle, _ int64) ([]byte, error) {
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
