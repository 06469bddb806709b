package ticketcmd

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/cli"
)

// tokenBytes of randomness make an admin token: 26 characters, nothing to guess.
const tokenBytes = 16

// madeToken is what is said of a new admin token. The token itself is there only when no
// file has it.
type madeToken struct {
	Token  string `json:"token,omitempty"`
	Role   string `json:"role"`
	Line   string `json:"line"`             // of the file that admin.tokens names
	Out    string `json:"file,omitempty"`   // has the token
	Tokens string `json:"tokens,omitempty"` // has the line
}

func newToken(env Env) *cobra.Command {
	var (
		role, out, tokens string
		asJSON            bool
	)
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token of the admin API, and its line for the file of admin.tokens",
		Long: `Make a token of the admin API. The service knows only its hash: the token goes to standard output, once,
and its line for the file that admin.tokens names goes to standard error.

--out puts the token into a new file with mode 0600, as --admin-token-file reads it; --tokens adds the
line to the file of admin.tokens, which is made when there is none. A service reads it when it starts.`,
		Example: `  sluice key token
  sluice key token --out admin.token --tokens admin-tokens
  sluice key token --role viewer --json`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role != "operator" && role != "viewer" {
				return usage(fmt.Errorf("--role: %q is not operator or viewer", role))
			}
			random := make([]byte, tokenBytes)
			if _, err := io.ReadFull(env.Random, random); err != nil {
				return fmt.Errorf("make a token: %w", err)
			}
			token := "sluice_" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random)
			sum := sha256.Sum256([]byte(token))
			made := madeToken{Token: token, Role: role, Line: role + " sha256:" + hex.EncodeToString(sum[:]), Out: out, Tokens: tokens}
			if out != "" {
				if err := writeNew(out, token); err != nil {
					return usage(fmt.Errorf("--out: %w", err))
				}
				made.Token = ""
			}
			if tokens != "" {
				if err := appendLine(tokens, made.Line); err != nil {
					return usage(fmt.Errorf("--tokens: %w", err))
				}
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), made)
			}
			return tellToken(cmd, made)
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "operator", "operator or viewer")
	f.StringVar(&out, "out", "", "new file for the token; default: standard output")
	f.StringVar(&tokens, "tokens", "", "file of admin.tokens to add the line to; default: standard error")
	f.BoolVar(&asJSON, "json", false, `print {"token","role","line"}; with files {"role","line","file","tokens"}`)
	return cmd
}

func tellToken(cmd *cobra.Command, made madeToken) error {
	if made.Out == "" {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), made.Token); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(cmd.ErrOrStderr(), "the %s token is in %s\n", made.Role, made.Out)
	}
	if made.Tokens == "" {
		fmt.Fprintln(cmd.ErrOrStderr(), made.Line)
	} else {
		fmt.Fprintf(cmd.ErrOrStderr(), "its line is in %s\n", made.Tokens)
	}
	return nil
}

// writeNew never replaces a file: a token that is gone cannot be made again.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text + "\n"); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// appendLine begins a line of its own, also after a file that does not end with one.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, size-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	if err == nil {
		_, err = f.WriteString(line + "\n")
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
