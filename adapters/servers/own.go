package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// OwnRedis is a Redis of one test alone, for what a shared one must not suffer: other
// settings, a kill, statistics undisturbed.
type OwnRedis struct {
	Port int
	args []string
	t    testing.TB
	cmd  *exec.Cmd
}

// StartOwnRedis starts redis-server on a free port of loopback, without persistence unless
// args say so. It ends with the test. The test is left out under -short.
func StartOwnRedis(t testing.TB, args ...string) *OwnRedis {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server: left out by -short")
	}
	r := &OwnRedis{Port: freePort(t), t: t}
	r.args = append([]string{
		"--port", strconv.Itoa(r.Port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--maxmemory-policy", "noeviction", "--loglevel", "warning",
	}, args...)
	r.Start()
	t.Cleanup(r.Kill)
	return r
}

// StartOwnSentinel starts a Redis Sentinel of one test that watches primary as "mymaster"
// and decides alone.
func StartOwnSentinel(t testing.TB, primary *OwnRedis) *OwnRedis {
	t.Helper()
	r := &OwnRedis{Port: freePort(t), t: t}
	file := filepath.Join(t.TempDir(), "sentinel.conf") // it writes its state there
	settings := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor mymaster 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n",
		r.Port, filepath.Dir(file), primary.Port)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	r.args = []string{file, "--sentinel", "--loglevel", "warning"}
	r.Start()
	t.Cleanup(r.Kill)
	return r
}

// Addr is host:port.
func (r *OwnRedis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port)) }

// URL is the address as a store's setting.
func (r *OwnRedis) URL() string { return "redis://" + r.Addr() }

// Start starts it again after Kill, and waits until it accepts.
func (r *OwnRedis) Start() {
	r.t.Helper()
	r.cmd = exec.Command("redis-server", r.args...)
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		r.t.Fatalf("%v: install it by `make servers-up`", err)
	}
	for end := time.Now().Add(5 * time.Second); ; {
		c, err := net.DialTimeout("tcp", r.Addr(), 100*time.Millisecond)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("redis-server does not accept: %v", err)
		}
		time.Sleep(5 * time.Millisecond) // another process: nothing tells when it is ready
	}
}

// Kill ends it at once, as kill -9 does; killing it again does nothing.
func (r *OwnRedis) Kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// freePort leaves room for a cluster's bus, 10000 above.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port < 55000 {
			return port
		}
	}
	t.Fatal("no free port below 55000")
	return 0
}
