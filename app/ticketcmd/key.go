package ticketcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/keys"
)

// NewKey is "sluice key".
func NewKey(env Env) *cobra.Command {
	return cli.Mannered(cli.Group("key", "Make keys and admin tokens", "  sluice key new --kid ticket-key-202606 --out ticket-keys.json\n  sluice key token --out admin.token --tokens admin-tokens", newKey(env), newToken(env)))
}

// made is what is said of a new key that went into a file.
type made struct {
	KeyID string `json:"kid"`
	Alg   string `json:"alg"`
	File  string `json:"file"`
	Keys  int    `json:"keys"` // in the file now
}

func newKey(env Env) *cobra.Command {
	var (
		kty, kid, out string
		add, asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a key as a JSON Web Key Set",
		Long: `Make a key and write it as a JSON Web Key Set with mode 0600, or print the set when there is no --out.

oct (HS256) serves tickets, nonces, draws and sessions; EC (ES256), OKP (EdDSA) and RSA (RS256) serve
sessions. The first key of a file signs unless the rules name another, so --add puts the new key last:
known everywhere before it signs. An existing file is never replaced.`,
		Example: `  sluice key new --kid ticket-key-202606 --out ticket-keys.json
  sluice key new --kid ticket-key-202607 --out ticket-keys.json --add
  sluice key new --kty OKP --kid session-1 --json --out session-keys.json`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kid == "" {
				kid = "key-" + env.Now().UTC().Format("20060102")
			}
			k, err := create(kty, kid)
			if err != nil {
				return usage(err)
			}
			if out == "" {
				return printSet(cmd, k)
			}
			set, err := setWith(k, out, add)
			if err != nil {
				return usage(err)
			}
			if err := set.WriteFile(out); err != nil {
				return usage(err)
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), made{k.ID(), string(k.Alg()), out, set.Len()})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s (%s) is key %d of %s\n", k.ID(), k.Alg(), set.Len(), out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&kty, "kty", "oct", "oct, EC, OKP or RSA")
	f.StringVar(&kid, "kid", "", "the key's name, 1..64 of [A-Za-z0-9._-]; default key-<today>")
	f.StringVar(&out, "out", "", "file to write; default: print the set, secrets included")
	f.BoolVar(&add, "add", false, "add to an existing file, as its last key")
	f.BoolVar(&asJSON, "json", false, `with --out, print {"kid","alg","file","keys"}`)
	return cmd
}

func create(kty, kid string) (keys.Key, error) {
	switch kty {
	case "oct":
		return keys.NewOct(kid)
	case "EC":
		return keys.NewEC(kid)
	case "OKP":
		return keys.NewEd25519(kid)
	case "RSA":
		return keys.NewRSA(kid)
	default:
		return keys.Key{}, fmt.Errorf("--kty: %q is not oct, EC, OKP or RSA", kty)
	}
}

// setWith is what is to be written: the key alone into a new file, or an existing file's keys and the new.
func setWith(k keys.Key, path string, add bool) (keys.Set, error) {
	if add {
		set, err := keys.Load(path)
		if err != nil {
			return keys.Set{}, err
		}
		return set.Add(k)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return keys.Set{}, fmt.Errorf("--out: %s exists; add to it with --add", path)
	}
	return keys.NewSet(k)
}

func printSet(cmd *cobra.Command, k keys.Key) error {
	set, err := keys.NewSet(k)
	if err != nil {
		return usage(err)
	}
	content, err := set.Encode()
	if err != nil {
		return usage(err)
	}
	_, err = cmd.OutOrStdout().Write(content)
	return err
}
