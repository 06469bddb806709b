package ticketcmd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/ticket"
)

// NewTicket is "sluice ticket".
func NewTicket(env Env) *cobra.Command {
	return cli.Mannered(cli.Group("ticket", "Make, read and check tickets by hand", "  sluice ticket inspect eyJhbGciOiJIUzI1NiIs…", newMint(env), newInspect(), newVerify(env)))
}

// binding is the flags that a ticket is bound to: claims of mint, expectations of verify.
type binding struct {
	activity, sku, user, device, deviceHash, pathID string
	activityVersion                                 int64
}

func (b *binding) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.activity, "activity", "", "activity id")
	f.StringVar(&b.sku, "sku", "", "SKU id")
	f.StringVar(&b.user, "user", "", "user id")
	f.StringVar(&b.device, "device", "", "X-Device-Id, of which the hash is taken")
	f.StringVar(&b.deviceHash, "device-hash", "", "its hash, sha256:<hex>, in place of --device")
	f.StringVar(&b.pathID, "path-id", "", "the activity's dynamic path")
	f.Int64Var(&b.activityVersion, "activity-version", 0, "the activity's version, from 1")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if b.device != "" && b.deviceHash != "" {
			return usage(errors.New("give --device or --device-hash, not both"))
		}
		return nil
	}
}

func (b *binding) hash() string {
	if b.device != "" {
		return admission.DeviceHash(b.device)
	}
	return b.deviceHash
}

// minted has the shape of POST /v1/activities/{activity}/tickets.
type minted struct {
	Ticket    string `json:"ticket"`
	RequestID string `json:"request_id"`
	PathID    string `json:"path_id"`
	Nonce     string `json:"nonce"`
	ExpiresAt string `json:"expires_at"`
}

func newMint(env Env) *cobra.Command {
	var (
		b                                binding
		keyFile, keyID, nonceFile, nonce string
		notBefore                        string
		attempt                          int64
		ttl                              time.Duration
		asJSON                           bool
	)
	cmd := &cobra.Command{
		Use:   "mint",
		Short: "Sign a ticket",
		Long: `Sign a ticket with a key of the ticket key file and print it alone on one line.

The nonce is --nonce, or derived as the service does with --nonce-key (or SLUICE_NONCE_KEY), or random.`,
		Example: `  sluice ticket mint --keys ticket-keys.json --activity 10001 --sku 90001 --user 70000001 \
    --device 0f6c4a52-3f19-4c11 --activity-version 1 --path-id p_7vKh2P8wQz1x
  SLUICE_TICKET_KEYS=ticket-keys.json sluice ticket mint --json --ttl 5m …`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := env.loadKeys("keys", keyFile, "SLUICE_TICKET_KEYS")
			if err != nil {
				return err
			}
			ring, err := ticket.NewRing(set, ticket.Config{ActiveKeyID: keyID})
			if err != nil {
				return usage(err)
			}
			from, err := env.timeFlag("not-before", notBefore)
			if err != nil {
				return err
			}
			if nonce == "" {
				if nonce, err = env.nonce(nonceFile, b, attempt); err != nil {
					return err
				}
			}
			claims := ticket.Claims{
				ActivityID: b.activity, SKUID: b.sku, UserID: b.user, DeviceHash: b.hash(),
				ActivityVersion: b.activityVersion, PathID: b.pathID, Nonce: nonce,
				NotBefore: from, ExpiresAt: from.Add(ttl),
			}
			raw, err := ring.Issue(claims)
			if err != nil {
				return usage(err)
			}
			if !asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), raw)
				return nil
			}
			return cli.PrintJSON(cmd.OutOrStdout(), minted{raw, ticket.RequestID(nonce), b.pathID, nonce, stamp(claims.ExpiresAt)})
		},
	}
	b.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&keyFile, "keys", "", "ticket key file (JSON Web Key Set); default $SLUICE_TICKET_KEYS")
	f.StringVar(&keyID, "key-id", "", "the key that signs; default the file's first")
	f.StringVar(&nonce, "nonce", "", "this nonce")
	f.StringVar(&nonceFile, "nonce-key", "", "nonce key file to derive the nonce with; default $SLUICE_NONCE_KEY")
	f.Int64Var(&attempt, "attempt", 0, "the user's attempt, for a derived nonce")
	f.DurationVar(&ttl, "ttl", 30*time.Second, "how long the ticket lasts")
	f.StringVar(&notBefore, "not-before", "", "start of its life, RFC 3339; default now")
	f.BoolVar(&asJSON, "json", false, "print ticket, request_id, path_id, nonce and expires_at")
	return cmd
}

// nonce derives a nonce when there is a nonce key, and draws one when there is none.
func (e Env) nonce(file string, b binding, attempt int64) (string, error) {
	if file == "" && e.Getenv("SLUICE_NONCE_KEY") == "" {
		var random [16]byte
		if _, err := io.ReadFull(e.Random, random[:]); err != nil {
			return "", fmt.Errorf("random nonce: %w", err)
		}
		return "n_" + base64.RawURLEncoding.EncodeToString(random[:]), nil
	}
	set, err := e.loadKeys("nonce-key", file, "SLUICE_NONCE_KEY")
	if err != nil {
		return "", err
	}
	derive, err := ticket.NewDeriver(set.First())
	if err != nil {
		return "", usage(err)
	}
	return derive.Nonce(b.user, b.activity, b.sku, b.activityVersion, attempt), nil
}
