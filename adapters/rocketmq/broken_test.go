package rocketmq_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sluice-io/sluice/adapters/rocketmq"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// A broker that dies and comes back: behind a proxy that can be cut, so that the broker
// of everybody else's tests goes on.

func TestConsumerIsMadeAnewWhenTheBrokerIsBack(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	c, broker := breakable(t)
	q := open(t, c)
	got := collect(t, q)
	if err := q.Send(t.Context(), []string{"r_before_"}, [][]byte{[]byte("x")}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "message before the cut", func() bool { return got.has("r_before_") })

	broker.cut(t)
	within(t, time.Minute, "fault", func() bool {
		err := q.Send(t.Context(), []string{"r_during_"}, [][]byte{[]byte("x")})
		return errors.Is(err, admission.ErrUnavailable) || errors.Is(err, admission.ErrUnknownResult)
	})
	if err := q.Ready(t.Context()); err == nil {
		t.Error("ready while the broker is away")
	}
	time.Sleep(2 * time.Second) // longer than one probe: the consumer must have noticed
	broker.mend(t)
	start := time.Now()
	within(t, time.Minute, "readiness", func() bool { return q.Ready(t.Context()) == nil })
	if err := q.Send(t.Context(), []string{"r_after__"}, [][]byte{[]byte("x")}); err != nil {
		t.Fatal(err)
	}
	within(t, 25*time.Second, "message after the cut (the client alone takes 30 s)", func() bool { return got.has("r_after__") })
	t.Logf("consuming again after %s", time.Since(start))
}

func TestBlackHoleCostsTheSendTimeout(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	c, broker := breakable(t)
	c.SendTimeout = 100 * time.Millisecond
	q := open(t, c)
	within(t, time.Minute, "readiness", func() bool { return q.Ready(t.Context()) == nil })
	broker.hole(t)
	fastest := time.Hour // of three: others may hold the machine up
	for range 3 {
		start := time.Now()
		err := q.Send(t.Context(), []string{"r_swallowed"}, [][]byte{[]byte("x")})
		if !errors.Is(err, admission.ErrUnknownResult) {
			t.Errorf("got %v: want unknown, the message may have arrived", err)
		}
		if fastest = min(fastest, time.Since(start)); fastest <= time.Second {
			break
		}
	}
	if fastest > time.Second {
		t.Errorf("a black hole cost %s: want about 100 ms", fastest)
	}
}

// collected are the keys that a consumer was given.
type collected struct {
	mu   sync.Mutex
	keys map[string]int
}

func (c *collected) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[key] > 0
}

func collect(t *testing.T, q *rocketmq.Queue) *collected {
	t.Helper()
	c := &collected{keys: make(map[string]int)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = q.Consume(ctx, 10, time.Millisecond, func(_ context.Context, ds []admission.Delivery) []error {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, d := range ds {
				c.keys[d.Key]++
			}
			return make([]error, len(ds))
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return c
}

// cuttable is a proxy before the broker.
type cuttable struct{ proxy *toxiproxy.Proxy }

func (c cuttable) cut(t *testing.T) { t.Helper(); c.proxy.Stop() }

func (c cuttable) mend(t *testing.T) {
	t.Helper()
	if err := c.proxy.Start(); err != nil {
		t.Fatal(err)
	}
}

func (c cuttable) hole(t *testing.T) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		toxic := `{"name":"hole_` + stream + `","type":"timeout","stream":"` + stream + `","attributes":{"timeout":0}}`
		if _, err := c.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			t.Fatal(err)
		}
	}
}

// breakable is a fresh queue whose broker is reached through a proxy: its name server
// answers with the proxy's address instead of the broker's.
func breakable(t *testing.T) (rocketmq.Config, cuttable) {
	t.Helper()
	c := fresh(t)
	c.Probe = 200 * time.Millisecond
	real := servers.RocketMQBroker(t)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "broker", "127.0.0.1:0", real)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	c.NameServers = []string{relay(t, c.NameServers[0], real, proxy.Listen)}
	return c, cuttable{proxy}
}

// relay passes a name server's frames on and writes to for from in the answers.
func relay(t *testing.T, nameServer, from, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", nameServer)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { rewrite(client, server, from, to); _ = client.Close() }()
		}
	}()
	return l.Addr().String()
}

func rewrite(client io.Writer, server io.Reader, from, to string) {
	var lengths [8]byte
	for {
		if _, err := io.ReadFull(server, lengths[:]); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint32(lengths[:4])-4)
		if _, err := io.ReadFull(server, rest); err != nil {
			return
		}
		head := binary.BigEndian.Uint32(lengths[4:]) & 0xffffff
		body := bytes.ReplaceAll(rest[head:], []byte(from), []byte(to))
		binary.BigEndian.PutUint32(lengths[:4], 4+head+uint32(len(body)))
		frame := append(append(append([]byte{}, lengths[:]...), rest[:head]...), body...)
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
}
