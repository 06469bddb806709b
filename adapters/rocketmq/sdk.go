package rocketmq

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	// readTimeout closes a connection on which nothing arrives. It must exceed the
	// longest silence of a healthy one: the heartbeat's 30 s.
	readTimeout = 90 * time.Second
	// writeTimeout bounds a write to a peer that reads nothing, of calls without a
	// deadline of their own.
	writeTimeout = time.Second
)

// processWide settles what the client keeps once for the whole process; settling it
// again while clients run would be a data race inside it.
var processWide sync.Once

func settle(c Config, log *slog.Logger) {
	processWide.Do(func() {
		rlog.SetLogger(sdkLogger{log})
		// the option writes the client's global default, whichever client it is given to
		_, _ = consumer.NewPushConsumer(
			consumer.WithNameServer([]string{"127.0.0.1:1"}),
			consumer.WithInstance("process-wide-settings"),
			consumer.WithRemotingTimeout(c.ConnectTimeout, readTimeout, writeTimeout))
	})
}

// sdkLogger passes the client's faults on. Everything below a warning is noise (a line
// a pull), and warnings repeat in a loop while a broker is away: debug.
type sdkLogger struct{ log *slog.Logger }

func (l sdkLogger) Debug(string, map[string]any) {}
func (l sdkLogger) Info(string, map[string]any)  {}

func (l sdkLogger) Warning(msg string, fields map[string]any) { l.write(slog.LevelDebug, msg, fields) }
func (l sdkLogger) Error(msg string, fields map[string]any)   { l.write(slog.LevelWarn, msg, fields) }
func (l sdkLogger) Fatal(msg string, fields map[string]any)   { l.write(slog.LevelError, msg, fields) }

func (l sdkLogger) Level(string)            {}
func (l sdkLogger) OutputPath(string) error { return nil }

func (l sdkLogger) write(level slog.Level, msg string, fields map[string]any) {
	if msg == "" || !l.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]any, 0, 2*len(fields)+4)
	attrs = append(attrs, "event", "rocketmq_client", "said", msg)
	for k, v := range fields {
		if k == rlog.LogKeyMessages || k == "message" {
			continue // bodies
		}
		attrs = append(attrs, k, v)
	}
	l.log.Log(context.Background(), level, "rocketmq client", attrs...)
}

// resolver gives the client its name servers. The client refuses a host name unless it
// looks like a URL, whose scheme it then strips.
func resolver(nameServers []string) primitive.NsResolver {
	addrs := make([]string, len(nameServers))
	for i, a := range nameServers {
		addrs[i] = a
		if host, _, err := net.SplitHostPort(a); err == nil && net.ParseIP(host) == nil {
			addrs[i] = "http://" + a
		}
	}
	return primitive.NewPassthroughResolver(addrs)
}
