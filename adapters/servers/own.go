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

// OwnRedis is a Redis of one test or benchmark alone, for what a shared one must not
// suffer: other settings, a kill, statistics undisturbed.
type OwnRedis struct {
	Port int
	args []string
	t    testing.TB // nil outside tests
	cmd  *exec.Cmd

	release func() // gives the port back; outside tests the end of the process does
}

// NewOwnRedis starts redis-server on a free port of loopback, without persistence unless
// args say so; dir is where it writes. The caller kills it.
func NewOwnRedis(dir string, args ...string) (*OwnRedis, error) {
	r := &OwnRedis{}
	if err := r.reserve(); err != nil {
		return nil, err
	}
	r.args = append([]string{
		"--port", strconv.Itoa(r.Port), "--bind", "127.0.0.1", "--save", "", "--dir", dir,
		"--maxmemory-policy", "noeviction", "--loglevel", "warning",
	}, args...)
	if err := r.start(); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// StartOwnRedis is NewOwnRedis for a test: the server ends with it. The test is left out
// under -short.
func StartOwnRedis(t testing.TB, args ...string) *OwnRedis {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server: left out by -short")
	}
	r, err := NewOwnRedis(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	r.t = t
	t.Cleanup(r.release)
	t.Cleanup(r.Kill)
	return r
}

// StartOwnSentinel starts a Redis Sentinel of one test that watches primary as "mymaster"
// and decides alone.
func StartOwnSentinel(t testing.TB, primary *OwnRedis) *OwnRedis {
	t.Helper()
	r := &OwnRedis{t: t}
	if err := r.reserve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.release)
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
	if err := r.start(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *OwnRedis) start() error {
	r.cmd = exec.Command("redis-server", r.args...)
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		r.cmd = nil
		return fmt.Errorf("%w: install it by `make servers-up`", err)
	}
	for end := time.Now().Add(time.Minute); ; {
		c, err := net.DialTimeout("tcp", r.Addr(), time.Second)
		if err == nil {
			_ = c.Close()
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("redis-server does not accept: %w", err)
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

// reserve takes a port that stays the server's also while it is killed, with the port of a
// cluster's bus, 10000 above.
func (r *OwnRedis) reserve() error {
	at, release, err := reserveWith(10_000)
	r.Port, r.release = int(at.Port()), release
	return err
}
