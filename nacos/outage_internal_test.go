package nacos

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// An outage is told when it begins, when its cause changes, every half minute and when it is
// over; the SDK's lines are not heard meanwhile, and otherwise once in half a minute.
func TestAnOutageIsToldOnceInAWhile(t *testing.T) {
	var log bytes.Buffer
	o := &outage{cfg: Config{Servers: []string{"10.0.0.1:8848"}, DataID: "rules", Log: slog.New(slog.NewTextHandler(&log, nil))}}
	began := time.Unix(1_800_000_000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	lines := func(what string, want int, words ...string) {
		t.Helper()
		got := log.String()
		if strings.Count(got, "\n") != want {
			t.Errorf("%s: want %d lines\n%s", what, want, got)
		}
		for _, w := range words {
			if !strings.Contains(got, w) {
				t.Errorf("%s: no %q in\n%s", what, w, got)
			}
		}
		log.Reset()
	}
	refused := func(port int) error { // the port is another one at each look
		return fmt.Errorf("nacos: %w", &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: errors.New("connection refused")})
	}
	o.back(at(0))
	lines("never away", 0)
	if o.sdkLevel(at(0)) != slog.LevelWarn || o.sdkLevel(at(29)) != slog.LevelDebug || o.sdkLevel(at(31)) != slog.LevelWarn {
		t.Error("the SDK warns once in half a minute")
	}
	for s := range 30 {
		o.away(at(s), refused(s))
	}
	lines("half a minute", 1, "level=WARN", "event=rules_source_away", "10.0.0.1:8848")
	o.away(at(30), refused(1))
	lines("reminder", 1, "for=30s")
	o.away(at(31), errors.New("timeout"))
	lines("another cause", 1, "timeout")
	if o.sdkLevel(at(300)) != slog.LevelDebug {
		t.Error("the SDK warns of what is known")
	}
	o.back(at(32))
	lines("back", 1, "level=INFO", "event=rules_source_back", "after=32s")
	o.away(at(33), errors.New("timeout"))
	lines("away again", 1, "for=0s")
}
