package nacos

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Config of a source.
type Config struct {
	Servers   []string // host:port, or http(s)://host:port; at least one
	Namespace string   // id; "" and "public" are the same
	Group     string   // default DEFAULT_GROUP
	DataID    string   // default sluice.rules
	Username  string   // "": no login
	Password  string
	CAFile    string // for https servers; "": the system's authorities
	CertFile  string
	KeyFile   string
	CacheDir  string        // the SDK's own, one per process; default a temporary folder
	PollEvery time.Duration // default 3 s
	Timeout   time.Duration // of one request, default 2 s
	Now       func() time.Time
	Log       *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Namespace == "public" {
		c.Namespace = "" // the server files "" under public; the id "public" would be another key
	}
	if c.Group == "" {
		c.Group = "DEFAULT_GROUP"
	}
	if c.DataID == "" {
		c.DataID = "sluice.rules"
	}
	if c.PollEvery == 0 {
		c.PollEvery = 3 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// server is one address of the cluster.
type server struct {
	scheme string
	host   string
	port   uint64
}

// grpcOffset is how far above the HTTP port the server listens for the SDK.
const grpcOffset = 1000

func (s server) http() string { return net.JoinHostPort(s.host, strconv.FormatUint(s.port, 10)) }
func (s server) grpc() string {
	return net.JoinHostPort(s.host, strconv.FormatUint(s.port+grpcOffset, 10))
}

func parseServers(list []string) ([]server, error) {
	if len(list) == 0 {
		return nil, errors.New("nacos.servers: at least one host:port must be given")
	}
	var out []server
	for _, item := range list {
		s, err := parseServer(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("nacos.servers: %q: %w", item, err)
		}
		out = append(out, s)
	}
	return out, nil
}

func parseServer(item string) (server, error) {
	if !strings.Contains(item, "://") {
		item = "http://" + item
	}
	u, err := url.Parse(item)
	if err != nil {
		return server{}, err
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return server{}, errors.New("the scheme must be http or https")
	}
	if u.Path != "" && u.Path != "/" {
		return server{}, errors.New("only host and port are wanted")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || u.Hostname() == "" || port == 0 || port+grpcOffset > 65535 {
		return server{}, fmt.Errorf("must be host:port, with a port in 1..%d", 65535-grpcOffset)
	}
	return server{u.Scheme, u.Hostname(), port}, nil
}

// tlsConfig reads the files here, because the SDK ends the whole process over a bad one.
func (c Config) tlsConfig() (*tls.Config, error) {
	t := &tls.Config{}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("nacos authority: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("nacos authority %s: no certificate in it", c.CAFile)
		}
	}
	if c.CertFile != "" || c.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("nacos client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}
