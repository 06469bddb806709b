package nacos_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/nacos"
	"github.com/sluice-io/sluice/rules"
)

// leftBehind is less than the SDK's constructor takes on a hung server.
const leftBehind = 3 * time.Second

// keptLog may be read while it is written.
type keptLog struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (k *keptLog) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(p)
}

func (k *keptLog) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.String()
}

// hung is a server that accepts and never answers, on both ports: the kernel accepts for it.
func hung(t *testing.T) string {
	t.Helper()
	for range 20 {
		low, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = low.Close() })
		port := low.Addr().(*net.TCPAddr).Port
		high, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1000)))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = high.Close() })
		return low.Addr().String()
	}
	t.Fatal("no two free ports 1000 apart")
	return ""
}

// The end of Run does not wait for the SDK's constructor, which takes 9 s on a hung server;
// what is left behind ends by itself.
func TestRunEndsWhileTheServerHangs(t *testing.T) {
	src, err := nacos.New(nacos.Config{Servers: []string{hung(t)}, DataID: dataID()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	asked := make(chan struct{}, 1)
	go func() {
		ended <- src.Run(ctx, func(rules.Update) {
			select {
			case asked <- struct{}{}:
			default:
			}
		})
	}()
	<-asked // one look has failed: the constructor is at it by now
	cancel()
	began := time.Now()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2500*time.Millisecond {
		t.Errorf("the end took %v", took)
	}
	src.Close()
	if took := time.Since(began); took < leftBehind {
		t.Logf("nothing was left behind after %v: the constructor was not at it", took)
	}
}

// A first start and an end say nothing at WARN: that the SDK's cache is empty is what we asked
// for, and that its connection breaks when it is closed is no news.
func TestAFirstStartAndAnEndWarnOfNothing(t *testing.T) {
	servers.Need(t, servers.Nacos())
	log := &keptLog{}
	key := dataID()
	src := open(t, nacos.Config{DataID: key, CacheDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- src.Run(ctx, func(rules.Update) {}) }()
	for deadline := time.Now().Add(15 * time.Second); !strings.Contains(log.String(), "cache file"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the SDK never looked at its cache:\n%s", log)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("an operator reads %s", line)
		}
	}
}
