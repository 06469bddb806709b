package ticketcmd

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/ticket"
)

// fact is one line of what a token says of itself, in the order of its payload.
type fact struct {
	name  string
	value any
}

func factsOf(u ticket.Unverified) []fact {
	if p := u.Pass; p != nil {
		return []fact{
			{"type", "seckill-pass"}, {"key_id", u.KeyID}, {"activity_id", p.ActivityID}, {"user_id", p.UserID},
			{"device_hash", p.DeviceHash}, {"lane", p.Lane}, {"joined_at", stamp(p.JoinedAt)}, {"sequence", p.Sequence},
		}
	}
	c := u.Ticket
	return []fact{
		{"type", "seckill-ticket"}, {"key_id", u.KeyID}, {"activity_id", c.ActivityID}, {"sku_id", c.SKUID},
		{"user_id", c.UserID}, {"device_hash", c.DeviceHash}, {"activity_version", c.ActivityVersion},
		{"path_id", c.PathID}, {"nonce", c.Nonce}, {"request_id", ticket.RequestID(c.Nonce)},
		{"not_before", stamp(c.NotBefore)}, {"expires_at", stamp(c.ExpiresAt)},
	}
}

func newInspect() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect TICKET",
		Short: "Say what a ticket or pass claims, without a key",
		Long: `Say what a ticket or pass claims. Nothing is verified, and the signature is never printed: what comes
out may be pasted into a report. request_id is the one suggested with the ticket's nonce.

"-" reads the ticket from standard input, which keeps it out of the list of processes.`,
		Example: `  sluice ticket inspect eyJhbGciOiJIUzI1NiIs…
  pbpaste | sluice ticket inspect --json -`,
		Args: cli.Args("TICKET (or - for standard input)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := token(cmd, args[0])
			if err != nil {
				return err
			}
			u, err := ticket.Inspect(raw)
			if err != nil {
				return no(err)
			}
			facts := append(factsOf(u), fact{"verified", false})
			if asJSON {
				object := make(map[string]any, len(facts))
				for _, f := range facts {
					object[f.name] = f.value
				}
				return cli.PrintJSON(cmd.OutOrStdout(), object)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, f := range facts {
				fmt.Fprintf(table, "%s\t%v\n", f.name, f.value)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// checked is the answer of verify. Code and reason are absent from a yes.
type checked struct {
	OK     bool   `json:"ok"`
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	KeyID  string `json:"key_id,omitempty"`
}

func newVerify(env Env) *cobra.Command {
	var (
		b           binding
		keyFile, at string
		asJSON      bool
	)
	cmd := &cobra.Command{
		Use:   "verify TICKET",
		Short: "Check a ticket or pass as the service does",
		Long: `Check a ticket or pass with the keys of a file, in the order in which the service checks. What no flag
says is taken from the ticket itself, so without binding flags only form, key, signature and time decide.
The nonce is not claimed. Exit code 1: refused; the reason is printed.`,
		Example: `  sluice ticket verify --keys ticket-keys.json --user 70000001 --activity-version 2 eyJhbGciOiJIUzI1NiIs…
  sluice ticket verify --keys ticket-keys.json --at 2026-06-25T12:00:31Z --json - < ticket.txt`,
		Args: cli.Args("TICKET (or - for standard input)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := env.loadKeys("keys", keyFile, "SLUICE_TICKET_KEYS")
			if err != nil {
				return err
			}
			ring, err := ticket.NewRing(set, ticket.Config{})
			if err != nil {
				return usage(err)
			}
			now, err := env.timeFlag("at", at)
			if err != nil {
				return err
			}
			raw, err := token(cmd, args[0])
			if err != nil {
				return err
			}
			var keyID string
			var reason ticket.Reason
			if u, err := ticket.Inspect(raw); err == nil && u.Pass != nil {
				keyID = u.KeyID
				_, reason = ring.VerifyPass(raw, b.expectPass(*u.Pass))
			} else {
				var own ticket.Claims // of an unreadable ticket there are none, and it fails before they matter
				if err == nil {
					own = *u.Ticket
				}
				var t ticket.Ticket
				t, reason = ring.Verify(raw, now, b.expect(own))
				keyID = t.KeyID
			}
			return report(cmd, asJSON, keyID, reason)
		},
	}
	b.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&keyFile, "keys", "", "ticket key file (JSON Web Key Set); default $SLUICE_TICKET_KEYS")
	f.StringVar(&at, "at", "", "check as of this time, RFC 3339; default now")
	f.BoolVar(&asJSON, "json", false, `print {"ok","code","reason","key_id"}`)
	return cmd
}

func report(cmd *cobra.Command, asJSON bool, keyID string, reason ticket.Reason) error {
	answer := checked{OK: reason == ticket.OK, KeyID: keyID}
	if !answer.OK {
		answer.Code, answer.Reason = reason.Outcome().String(), reason.String()
	}
	switch {
	case asJSON:
		if err := cli.PrintJSON(cmd.OutOrStdout(), answer); err != nil {
			return err
		}
	case answer.OK:
		fmt.Fprintf(cmd.OutOrStdout(), "ok, signed with %s\n", keyID)
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "refused: %s (%s)\n", answer.Code, answer.Reason)
	}
	if !answer.OK {
		return exit.Said(exit.No)
	}
	return nil
}

// expect is what the flags say, and what the ticket says where they say nothing.
func (b *binding) expect(own ticket.Claims) ticket.Expect {
	return ticket.Expect{
		ActivityID:      cmp.Or(b.activity, own.ActivityID),
		SKUID:           cmp.Or(b.sku, own.SKUID),
		UserID:          cmp.Or(b.user, own.UserID),
		DeviceHash:      cmp.Or(b.hash(), own.DeviceHash),
		ActivityVersion: cmp.Or(b.activityVersion, own.ActivityVersion),
		PathID:          cmp.Or(b.pathID, own.PathID),
	}
}

func (b *binding) expectPass(own ticket.Pass) ticket.PassExpect {
	return ticket.PassExpect{
		ActivityID: cmp.Or(b.activity, own.ActivityID),
		UserID:     cmp.Or(b.user, own.UserID),
		DeviceHash: cmp.Or(b.hash(), own.DeviceHash),
	}
}
