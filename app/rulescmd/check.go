package rulescmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/rules"
)

// verdict is what check says of a file: of a bad one what every failure says, and why.
type verdict struct {
	OK bool `json:"ok"`
	*cli.Failure
	Version  int64        `json:"version,omitempty"`
	Hash     string       `json:"hash,omitempty"`
	Reason   rules.Reason `json:"reason,omitempty"`
	Warnings rules.Faults `json:"warnings,omitempty"`
}

func (c *commands) check() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Judge a bundle offline: every fault with its path, warnings, and the hash that confirms it",
		Long: `Judge a bundle offline, as an instance would when it starts: every fault at once with its JSON path,
warnings, and the hash that "confirm" must hold for a change that looks like a slip of the hand.
FILE - reads standard input.`,
		Example: `  sluice rules check rules.json
  sluice rules show --default | sluice rules check -`,
		Args: cli.Args("FILE (or - for standard input)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := readFile(cmd, args[0])
			if err != nil {
				return err
			}
			v := judge(args[0], raw)
			if asJSON {
				if err := cli.PrintJSON(cmd.OutOrStdout(), v); err != nil {
					return err
				}
				if !v.OK {
					return exit.Said(exit.No)
				}
				return nil
			}
			v.print(cmd)
			if !v.OK {
				return exit.Code(exit.No, errors.New(v.Error))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the facts as JSON")
	return cmd
}

func judge(name string, raw []byte) verdict {
	b, warnings, err := rules.Decode(raw)
	if err == nil {
		return verdict{OK: true, Version: b.Version, Hash: b.Hash(), Warnings: warnings}
	}
	v := verdict{Failure: &cli.Failure{Error: name + " is rejected: " + err.Error(), Faults: Faults(err)}}
	var r *rules.Rejection
	if errors.As(err, &r) {
		v.Reason, v.Version = r.Reason, r.Version
		v.Error = fmt.Sprintf("%s is rejected (%s): %d faults", name, v.Reason, len(v.Faults))
	}
	return v
}

func (v verdict) print(cmd *cobra.Command) {
	out := cmd.OutOrStdout()
	if v.Failure != nil {
		for _, f := range v.Faults {
			fmt.Fprintf(out, "fault   %s: %s\n", f.Path, f.Error)
		}
	}
	for _, w := range v.Warnings {
		fmt.Fprintln(out, "warning", w)
	}
	if v.OK {
		fmt.Fprintf(out, "ok      version %d, hash %s\n", v.Version, v.Hash)
	}
}

func (c *commands) show() *cobra.Command {
	var shipped, schema bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the bundle in force, the shipped one, or the JSON Schema of both",
		Long: `Print the bare bundle: the one a running instance has in force when its admin listener answers, else
the one that the source holds.

--schema prints the JSON Schema of a bundle instead, with which an editor knows its fields. It knows names, types
and words; ranges, and what spans fields, are told by "sluice rules check".`,
		Example: `  sluice rules show --default > rules.json
  sluice rules show --schema > rules.schema.json
  sluice rules show`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case shipped && schema:
				return exit.Code(exit.Usage, errors.New("--default and --schema: one of them"))
			case shipped:
				_, err := cmd.OutOrStdout().Write(rules.DefaultDocument())
				return err
			case schema:
				_, err := cmd.OutOrStdout().Write(rules.SchemaDocument())
				return err
			}
			s, src, done, err := c.open()
			if err != nil {
				return err
			}
			defer done()
			if b, err := s.inForce(cmd.Context()); err == nil {
				_, err := cmd.OutOrStdout().Write(b.Indent())
				return err
			}
			raw, err := current(cmd.Context(), src)
			if err != nil {
				return err
			}
			if raw == nil {
				return exit.Code(exit.No, fmt.Errorf("%s holds no rules", src.Name()))
			}
			_, err = cmd.OutOrStdout().Write(raw)
			return err
		},
	}
	cmd.Flags().BoolVar(&shipped, "default", false, "the bundle that is shipped")
	cmd.Flags().BoolVar(&schema, "schema", false, "the JSON Schema of a bundle, for editors")
	cmd.Flags().Bool("json", false, "print a failure as JSON too; a bundle always is")
	return cmd
}

func (c *commands) diff() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Say in words what changes from one bundle to another",
		Long:  `Say in words what changes from A to B. "current" stands for the bundle of the source, "default" for the shipped one.`,
		Example: `  sluice rules diff current rules.json
  sluice rules diff default rules.json`,
		Args: cli.Args("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var pair [2]*rules.Bundle
			for i, name := range args {
				b, err := c.named(cmd, name)
				if err != nil {
					return err
				}
				pair[i] = b
			}
			changes := rules.Diff(pair[0], pair[1])
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]rules.Change{}, changes...)) // none is a list too
			}
			printChanges(cmd.OutOrStdout(), "", changes)
			if len(changes) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no difference")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the facts as JSON")
	return cmd
}

func (c *commands) named(cmd *cobra.Command, name string) (*rules.Bundle, error) {
	var raw []byte
	switch name {
	case "default":
		return rules.Default(), nil
	case "current":
		_, src, done, err := c.open()
		if err != nil {
			return nil, err
		}
		defer done()
		if raw, err = current(cmd.Context(), src); err != nil {
			return nil, err
		}
		if raw == nil {
			return nil, exit.Code(exit.No, fmt.Errorf("%s holds no rules", src.Name()))
		}
	default:
		var err error
		if raw, err = readFile(cmd, name); err != nil {
			return nil, err
		}
	}
	b, _, err := rules.Decode(raw)
	if err != nil {
		return nil, exit.Code(exit.No, fmt.Errorf("%s: %w", name, err))
	}
	return b, nil
}
