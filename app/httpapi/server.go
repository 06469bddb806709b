package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"time"
)

// Limits of one listener (20-edge).
const (
	HeaderTimeout  = 2 * time.Second
	readTimeout    = 5 * time.Second // header and body together; a body has bodyDeadline of it
	writeTimeout   = 10 * time.Second
	idleTimeout    = 60 * time.Second
	MaxHeaderBytes = 16 << 10 // net/http adds 4 KiB of its own
	maxStreams     = 250      // of one HTTP/2 connection
)

// NewServer is an HTTP server with the limits that every listener of Sluice has. It
// speaks HTTP/1.1, and HTTP/2 to an edge that speaks it by prior knowledge.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: HeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(addressless{log.Handler()}, slog.LevelDebug),
		// "OPTIONS *" is an unknown path like any other; net/http would answer 200.
		DisableGeneralOptionsHandler: true,
	}
}

// Aborted reports whether a recovered panic is the one that ends a connection on
// purpose; net/http must get it back.
func Aborted(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// addressPattern is what net/http writes of a client: an address and a port.
var addressPattern = regexp.MustCompile(`(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.%\w]+\])(:\d+)?`)

// withoutAddresses hides addresses: a client's own never reaches a log.
func withoutAddresses(s string) string { return addressPattern.ReplaceAllString(s, "(address)") }
