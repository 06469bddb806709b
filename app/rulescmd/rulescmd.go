// Package rulescmd is "sluice rules": check a bundle offline, see and change the one in
// force, and wait until every live instance runs it.
//
// Exit codes: 0 done, 1 the answer is no (a rejected file, a conflict, drift), 2 wrong use,
// 3 a dependency is away. Nothing but the rules source is needed to push; an admin listener
// is asked for acknowledgements when there is one, else the instances' table in the limiter
// store, where that is configured.
package rulescmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/nacos"
	"github.com/sluice-io/sluice/rules"
)

// Settings are the service's settings that the commands need.
type Settings struct {
	Source     string // file, nacos
	File       string // of source file
	Nacos      Nacos
	AdminURL   string // "": no running instance is known
	AdminToken string
	NoAdmin    error // why none is known
	// Registry is asked where no admin listener is; nil: there is no limiter store to ask.
	Registry Registry
}

// Nacos is where the rules are with source nacos.
type Nacos struct {
	Servers   []string
	Namespace string
	Group     string
	DataID    string
	Username  string
	Password  string
}

// New returns the command. settings is called when a command needs them, after its flags
// were read.
func New(settings func() (Settings, error)) *cobra.Command {
	c := &commands{settings: settings}
	return cli.Mannered(cli.Group("rules", "Check, show, compare and push the rules in force",
		"  sluice rules show --default > rules.json\n  sluice rules check rules.json\n  sluice rules push --bump rules.json\n  sluice rules status",
		c.check(), c.show(), c.diff(), c.push(), c.status(), c.history(), c.rollback(), c.promote()))
}

type commands struct{ settings func() (Settings, error) }

// governed is a source that can be read, written and closed.
type governed interface {
	rules.Governed
	Name() string
}

func (c *commands) open() (Settings, governed, func(), error) {
	s, err := c.settings()
	if err != nil {
		return s, nil, nil, exit.Code(exit.Usage, err)
	}
	switch s.Source {
	case "", "file":
		if s.File == "" {
			return s, nil, nil, exit.Code(exit.Usage, errors.New("rules.file is not set"))
		}
		return s, &rules.FileSource{Path: s.File}, func() {}, nil
	case "nacos":
		src, err := nacos.New(nacos.Config{Servers: s.Nacos.Servers, Namespace: s.Nacos.Namespace, Group: s.Nacos.Group,
			DataID: s.Nacos.DataID, Username: s.Nacos.Username, Password: s.Nacos.Password})
		if err != nil {
			return s, nil, nil, exit.Code(exit.Usage, err)
		}
		return s, src, src.Close, nil
	}
	return s, nil, nil, exit.Code(exit.Usage, fmt.Errorf("rules.source %q cannot be written from here; it must be file or nacos", s.Source))
}

// coded gives an error of a source its exit code.
func coded(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, admission.ErrUnavailable), errors.Is(err, nacos.ErrDenied):
		return exit.Code(exit.Away, err)
	}
	return exit.Code(exit.No, err)
}

// current reads the document of the source: nil, nil when there is none.
func current(ctx context.Context, src governed) ([]byte, error) {
	raw, err := src.Read(ctx)
	if errors.Is(err, admission.ErrNotFound) {
		return nil, nil
	}
	return raw, coded(err)
}

// readFile reads a bundle from a file, or from standard input for "-".
func readFile(cmd *cobra.Command, path string) ([]byte, error) {
	var (
		raw []byte
		err error
	)
	if path == "-" {
		raw, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), rules.MaxDocument+1))
	} else {
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, exit.Code(exit.Usage, err)
	}
	return raw, nil
}
