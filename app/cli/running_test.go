package cli_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/exit"
)

// TestNotFoundSaysWhatToDo: a file that this user may not read is no instance that is away.
func TestNotFoundSaysWhatToDo(t *testing.T) {
	const path = ".sluice/ready.json"
	for _, c := range []struct {
		kind error
		code int
		says string
	}{
		{fs.ErrNotExist, exit.Away, "start `sluice serve`"},
		{fs.ErrPermission, exit.Usage, "run this as the user of `sluice serve`"},
	} {
		err := cli.NotFound(path, &fs.PathError{Op: "open", Path: path, Err: c.kind})
		if exit.Of(err) != c.code || !strings.Contains(err.Error(), c.says) || strings.Count(err.Error(), path) != 1 || !strings.Contains(err.Error(), "--admin-token-file") {
			t.Errorf("exit code %d: %v", exit.Of(err), err)
		}
	}
}
