package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMakeRunStaysEmbedded: a shell that took the settings of a production service still gets
// the whole sale on this machine from `make run`, and is told that they are not used.
func TestMakeRunStaysEmbedded(t *testing.T) {
	makefile, err := filepath.Abs("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// In place of the compiler: what it "builds" prints its settings.
	compiler := "#!/bin/sh\nprintf '#!/bin/sh\\nenv | grep ^SLUICE_\\n' > \"$3\"\nchmod 0700 \"$3\"\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(compiler), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-f", makefile, "run")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir,
		"SLUICE_STOCK_REDIS=redis://:SECRET@10.0.0.1:6379", "SLUICE_QUEUE=rocketmq", "SLUICE_ADMIN_TOKEN_FILE=/x", "SLUICE_RULES_SOURCE=nacos",
		"SLUICE_LISTEN_PUBLIC=127.0.0.1:0", "SLUICE_DATA_DIR=elsewhere", "SLUICE_DEMO_OPENS_IN=1m",
	}
	said := &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{"SLUICE_LISTEN_PUBLIC=", "SLUICE_DATA_DIR=", "SLUICE_DEMO_OPENS_IN="} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s was dropped:\n%s", want, out)
		}
	}
	for _, never := range []string{"STOCK_REDIS", "QUEUE", "ADMIN_TOKEN_FILE", "RULES_SOURCE"} {
		if strings.Contains(string(out), never) {
			t.Errorf("%s reached the service:\n%s", never, out)
		}
	}
	if !strings.Contains(said.String(), "4 SLUICE_ settings of this shell are not used") || strings.Contains(said.String(), "SECRET") {
		t.Errorf("said: %q", said)
	}
}
