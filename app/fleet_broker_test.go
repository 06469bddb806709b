package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"

	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/client"
)

// relay passes connections on to a server, until it is told to swallow all that it is sent.
type relay struct {
	address string
	hole    atomic.Bool
}

// passOn starts a relay to a server; answers pass through copy.
func passOn(t *testing.T, target string, copy func(r *relay, to io.Writer, from io.Reader)) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			running.Go(func() { unlessHole(r, far, near); _ = far.Close() })
			running.Go(func() { copy(r, near, far); _ = near.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() }) // the instances at its ends are gone by then
	return r
}

// unlessHole copies bytes as they come.
func unlessHole(r *relay, to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !r.hole.Load() {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readdressed copies a name server's answers, with another address for the broker's. A frame
// is: length of the rest, length of the header, header, body.
func readdressed(broker, instead string) func(*relay, io.Writer, io.Reader) {
	return func(_ *relay, to io.Writer, from io.Reader) {
		var lengths [8]byte
		for {
			if _, err := io.ReadFull(from, lengths[:]); err != nil {
				return
			}
			rest := make([]byte, binary.BigEndian.Uint32(lengths[:4])-4)
			if _, err := io.ReadFull(from, rest); err != nil {
				return
			}
			header := binary.BigEndian.Uint32(lengths[4:]) & 0xffffff
			body := bytes.ReplaceAll(rest[header:], []byte(broker), []byte(instead))
			binary.BigEndian.PutUint32(lengths[:4], 4+header+uint32(len(body)))
			if _, err := to.Write(append(append(lengths[:], rest[:header]...), body...)); err != nil {
				return
			}
		}
	}
}

// TestS05KillBetweenReserveAndSend: people hold a reservation, its message was never sent, and
// the process that would have sent it is dead. Recovery makes every one an order, with a second
// send at once, or where nobody can send by the consumer's transaction within reservation_ttl
// and one scan. Nobody's unit is lost or sold again.
func TestS05KillBetweenReserveAndSend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		gone   bool // the broker, for the instance that recovers too
		within time.Duration
	}{
		{"others can send", false, 8 * time.Second},
		{"nobody can send", true, 17 * time.Second}, // reservation_ttl is 15 s, a scan comes every second
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			killBetweenReserveAndSend(t, c.gone, c.within)
		})
	}
}

func killBetweenReserveAndSend(t *testing.T, gone bool, within time.Duration) {
	f := newFleet(t)
	broker := passOn(t, servers.RocketMQBroker(t), unlessHole)
	names := passOn(t, servers.RocketMQ(), readdressed(servers.RocketMQBroker(t), broker.address))
	if gone {
		f.settings["rocketmq.name_servers"] = names.address
	}
	door := f.launch("door", map[string]string{"roles": "gateway", "rocketmq.name_servers": names.address})
	back := f.launch("back", map[string]string{"roles": "orders,control"})
	door.awaitReady()
	back.awaitReady()

	const people = 40
	f.sell(people, door)
	c, crowd := f.crowd(people, door)
	wants := turns(t, c, crowd)

	// Held still, so that however long the submits take nothing is recovered before the kill.
	back.signal(syscall.SIGSTOP)
	broker.hole.Store(true)
	var submitting sync.WaitGroup
	var accepted atomic.Int64
	for n, want := range wants {
		submitting.Go(func() {
			a, err := c.Submit(t.Context(), crowd[n], want)
			if err != nil || a.Status != client.StatusQueued {
				t.Errorf("submit: %+v, %v", a, err)
				return
			}
			accepted.Add(1)
		})
	}
	submitting.Wait()
	door.kill()
	killed := time.Now()
	then := f.count(crowdRef)
	t.Logf("killed: %v", then)
	if accepted.Load() != people || then.remaining != 0 || then.units["LIVE"] != people {
		t.Fatalf("%d accepted: want everything reserved, nothing ordered: %v", accepted.Load(), then)
	}
	back.signal(syscall.SIGCONT)

	done := f.conserved(crowdRef, people, within+10*time.Second)
	if took := time.Since(killed); took > within {
		t.Errorf("settled %v after the kill, want %v at most", took, within)
	}
	if done.orders != people {
		t.Errorf("%d orders of %d reservations", done.orders, people)
	}
}
