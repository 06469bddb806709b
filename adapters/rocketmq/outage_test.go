package rocketmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// An outage is told when it begins, when its cause changes, every 30 s, and when it ends.
func TestAnOutageIsNotToldEachSecond(t *testing.T) {
	var text bytes.Buffer
	o := &outage{log: slog.New(slog.NewJSONHandler(&text, nil)), queue: Config{NameServers: []string{"a:1", "b:2"}, Topic: "orders", Probe: time.Second}}
	start := time.Date(2026, 6, 25, 12, 0, 0, 0, time.UTC)
	said := func() (n int) {
		n = strings.Count(text.String(), "\n")
		text.Reset()
		return n
	}
	refused, silent := errors.New("refused"), errors.New("silent")
	for _, c := range []struct {
		second int
		err    error // nil: it is there
		lines  int
	}{
		{0, nil, 0}, {1, refused, 1}, {2, refused, 0}, {30, refused, 0}, {31, refused, 1}, {32, silent, 1}, {33, silent, 0}, {40, nil, 1}, {41, nil, 0}, {42, refused, 1}, {43, refused, 0},
	} {
		now := start.Add(time.Duration(c.second) * time.Second)
		if c.err == nil {
			o.back(now)
		} else {
			o.away(now, c.err)
		}
		if n := said(); n != c.lines {
			t.Errorf("second %d: %d lines, want %d", c.second, n, c.lines)
		}
	}
	o.away(start.Add(75*time.Second), refused)
	var line struct{ Event, Setting, Topic, Error, For, Msg string }
	if err := json.Unmarshal(text.Bytes(), &line); err != nil || line.Event != "queue_away" || line.Setting != "rocketmq.name_servers" ||
		!strings.Contains(text.String(), `"a:1,b:2"`) || line.For != "33s" || line.Error != "refused" || !strings.Contains(line.Msg, "reservations hold") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// A consumer beside a dead name server looks each second and says so once; the error names
// the setting and the address, and is the same each time.
func TestADeadNameServerIsNamedOnce(t *testing.T) {
	dead := servers.Reserve(t).String()
	var text bytes.Buffer
	c := Config{NameServers: []string{dead}, Probe: time.Millisecond}.withDefaults()
	q := &Queue{config: c, log: slog.New(slog.NewJSONHandler(&text, nil)), wire: newWire(c)}
	ctx, cancel := context.WithCancel(t.Context()) // no deadline: a dial would time out on it, which is another error
	defer time.AfterFunc(200*time.Millisecond, cancel).Stop()
	if err := q.Consume(ctx, 1, 0, nil); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "queue_away"); n != 1 || !strings.Contains(text.String(), "rocketmq.name_servers "+dead) {
		t.Errorf("said %d times:\n%s", n, text.String())
	}
}

// Our own port, another one at each attempt, is no part of an error.
func TestAFaultReadsTheSameTwice(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	w := newWire(Config{NameServers: []string{l.Addr().String()}})
	_, first := w.route(t.Context(), "x")
	for range 3 {
		if _, err := w.route(t.Context(), "x"); !errors.Is(err, admission.ErrUnavailable) || strings.Contains(err.Error(), "->") {
			t.Errorf("%v, and at first %v", err, first)
		}
	}
}
