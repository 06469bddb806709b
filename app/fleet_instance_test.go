package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// used says that the binary was built, and must be removed.
var used atomic.Bool

func program(t *testing.T) string {
	t.Helper()
	used.Store(true)
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// instance is one process of `sluice serve`.
type instance struct {
	t       *testing.T
	name    string
	dir     string // its data directory
	logFile string
	cmd     *exec.Cmd
	started time.Time
	line    chan readyLine // one, when it is ready
	ready   readyLine
	readyIn time.Duration
	ended   chan struct{} // closed when the process is gone
}

// start starts an instance with more settings and waits until it is ready.
func (f *fleet) start(name string, settings map[string]string) *instance {
	f.t.Helper()
	i := f.launch(name, settings)
	i.awaitReady()
	return i
}

// launch starts an instance and does not wait.
func (f *fleet) launch(name string, settings map[string]string) *instance {
	f.t.Helper()
	given := map[string]string{"instance.id": name, "data.dir": filepath.Join(f.dir, name)}
	for k, v := range settings {
		given[k] = v
	}
	i := launch(f.t, f.dir, name, environment(f.settings, given))
	f.instances = append(f.instances, i)
	return i
}

// launch starts `sluice serve`. It ends with the test, with SIGTERM first: an instance that
// does not leave by itself fails the test, and is killed.
func launch(t *testing.T, dir, name string, env []string) *instance {
	t.Helper()
	i := &instance{t: t, name: name, dir: filepath.Join(dir, name), logFile: filepath.Join(dir, name+".log"), line: make(chan readyLine, 1), ended: make(chan struct{})}
	log, err := os.OpenFile(i.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	i.cmd = exec.Command(program(t), "serve")
	i.cmd.Dir, i.cmd.Env, i.cmd.Stderr = dir, env, log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	i.started = time.Now()
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go i.follow(out)
	t.Cleanup(func() {
		if i.alive() {
			asked := time.Now()
			i.signal(syscall.SIGTERM)
			select {
			case <-i.ended:
				t.Logf("%s ended after %v", name, time.Since(asked).Round(time.Millisecond))
			case <-time.After(patience): // what a drain may take is a test of its own
				t.Errorf("%s does not end on SIGTERM", name)
				i.kill()
			}
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, i.tail(16<<10))
		}
	})
	if end, ok := t.Deadline(); ok { // the test's own panic would leave the process behind
		late := time.AfterFunc(time.Until(end)-5*time.Second, i.kill)
		t.Cleanup(func() { late.Stop() })
	}
	return i
}

// follow reads standard output, on which nothing but the ready line may come, to its end.
func (i *instance) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		var line readyLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Event != "ready" || n > 0 {
			i.t.Errorf("%s: line %d on standard output is no ready line: %s", i.name, n+1, lines.Bytes())
			continue
		}
		i.readyIn = time.Since(i.started)
		i.line <- line
	}
	_ = i.cmd.Wait()
	close(i.ended)
}

// patience bounds the waits for what must come and of which nobody promises when: it is for
// a machine that is busy with other things.
const patience = time.Minute

// awaitReady waits until it is ready.
func (i *instance) awaitReady() {
	i.t.Helper()
	select {
	case i.ready = <-i.line:
		i.t.Logf("%s is ready after %v", i.name, i.readyIn.Round(time.Millisecond))
	case <-i.ended:
		i.t.Fatalf("%s ended with %d instead of becoming ready", i.name, i.cmd.ProcessState.ExitCode())
	case <-time.After(patience):
		i.t.Fatalf("%s is not ready within %v", i.name, patience)
	}
}

func (i *instance) alive() bool {
	select {
	case <-i.ended:
		return false
	default:
		return true
	}
}

func (i *instance) signal(s syscall.Signal) { _ = syscall.Kill(i.cmd.Process.Pid, s) }

// isReady waits until readiness holds: it asks the stores, and may be lost for a moment while
// they are slow.
func (i *instance) isReady() {
	i.t.Helper()
	eventually(i.t, patience, i.name+" is ready", func() bool {
		status, body := i.get(i.ready.Internal, "/readyz", "")
		if status != http.StatusOK {
			i.t.Logf("%s: readiness is HTTP %d %s", i.name, status, body)
		}
		return status == http.StatusOK
	})
}

// kill ends the process and what it started at once, and waits until it is gone.
func (i *instance) kill() {
	if i.alive() {
		_ = syscall.Kill(-i.cmd.Process.Pid, syscall.SIGKILL)
		<-i.ended
	}
}

// exit waits for the end and returns the code.
func (i *instance) exit(within time.Duration) int {
	i.t.Helper()
	select {
	case <-i.ended:
		return i.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		i.t.Fatalf("%s did not end within %v", i.name, within)
		return -1
	}
}

// addresses are the settings with which it comes back where it was.
func (i *instance) addresses() map[string]string {
	return map[string]string{"listen.public": i.ready.Public, "listen.internal": i.ready.Internal, "listen.admin": i.ready.Admin}
}

// log is everything it has logged.
func (i *instance) log() []byte {
	text, _ := os.ReadFile(i.logFile)
	return text
}

// tail is the end of the log, without the decisions that went well.
func (i *instance) tail(most int) []byte {
	var kept []byte
	for line := range bytes.Lines(i.log()) {
		if !bytes.Contains(line, []byte(`"level":"INFO","msg":"decided"`)) {
			kept = append(kept, line...)
		}
	}
	return kept[max(0, len(kept)-most):]
}

// logged reports whether it has logged that event.
func (i *instance) logged(event string) bool {
	return bytes.Contains(i.log(), []byte(`"event":"`+event+`"`))
}

// get reads a document of one of its listeners; status 0: nobody answers.
func (i *instance) get(address, path, token string) (status int, body []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, nil
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	body, _ = io.ReadAll(res.Body)
	return res.StatusCode, body
}

// admin reads a document of the admin listener.
func (f *fleet) admin(i *instance, path string, into any) {
	f.t.Helper()
	token, err := os.ReadFile(f.tokenFile())
	if err != nil {
		f.t.Fatal(err)
	}
	status, body := i.get(i.ready.Admin, path, strings.TrimSpace(string(token)))
	if status != http.StatusOK {
		f.t.Fatalf("%s: GET %s: HTTP %d %s", i.name, path, status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		f.t.Fatalf("%s: GET %s: %v: %s", i.name, path, err, body)
	}
}

// metric sums a counter over its labels.
func (i *instance) metric(name string) (sum float64) {
	i.t.Helper()
	status, text := i.get(i.ready.Internal, "/metrics", "")
	if status != http.StatusOK {
		i.t.Fatalf("%s: GET /metrics: HTTP %d", i.name, status)
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			i.t.Fatalf("%s: %s", i.name, line)
		}
		sum += value
	}
	return sum
}
