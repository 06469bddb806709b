// Package ticketcmd is the command line for tickets and keys by hand: "sluice ticket mint|inspect|verify"
// and "sluice key new|token".
//
// Exit codes: 0 done, 1 the answer is no (a ticket that is refused or cannot be read), 2 wrong use (flags,
// key files). Facts go to standard output, as words or with --json; no command prints a signature or, but
// for "key new" and "key token" without --out, a secret.
package ticketcmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/keys"
)

// Env is what the commands take from the world around them.
type Env struct {
	Now    func() time.Time
	Random io.Reader                // for a nonce that is not derived
	Getenv func(name string) string // reads SLUICE_TICKET_KEYS and SLUICE_NONCE_KEY
}

func no(err error) error    { return exit.Code(exit.No, err) }
func usage(err error) error { return exit.Code(exit.Usage, err) }

// loadKeys reads the key file that a flag or, when it is empty, a variable names.
func (e Env) loadKeys(flag, path, variable string) (keys.Set, error) {
	if path == "" {
		path = e.Getenv(variable)
	}
	if path == "" {
		return keys.Set{}, usage(fmt.Errorf("no key file: give --%s or %s", flag, variable))
	}
	set, err := keys.Load(path)
	if err != nil {
		return keys.Set{}, usage(err)
	}
	return set, nil
}

// maxInput bounds what is read from standard input: a ticket, and some room to say that it is too long.
const maxInput = 4096

// token takes the token from the argument, or from standard input for "-".
func token(cmd *cobra.Command, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxInput))
	if err != nil {
		return "", usage(fmt.Errorf("standard input: %w", err))
	}
	return strings.TrimRight(string(b), "\r\n"), nil // the end of a line is not part of a ticket
}

// timeFlag reads an RFC 3339 time; "" is the moment now.
func (e Env) timeFlag(name, value string) (time.Time, error) {
	if value == "" {
		return e.Now(), nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, usage(fmt.Errorf("--%s: %q is not a time like 2026-06-25T12:00:00Z", name, value))
	}
	return t, nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
