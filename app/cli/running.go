package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sluice-io/sluice/app/exit"
)

// NotFound says why the file in which a running instance tells where it is was not read, and
// what to do: nobody runs there, or this user may not look.
func NotFound(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return exit.Code(exit.Usage, fmt.Errorf("%s: %w; run this as the user of `sluice serve`, or give --admin and --admin-token-file", path, fs.ErrPermission))
	}
	return exit.Code(exit.Away, fmt.Errorf("no running instance: %w; start `sluice serve`, or give --admin and --admin-token-file", err))
}
