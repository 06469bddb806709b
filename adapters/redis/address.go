package redis

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// deployment is how a store is run.
type deployment uint8

const (
	single deployment = iota
	sentinel
	cluster
)

// address is a parsed store URL.
type address struct {
	scheme                         string
	kind                           deployment
	secure                         bool
	hosts                          []string // host:port, at least one
	user, password                 string
	master                         string // sentinel only
	db                             int
	sentinelUser, sentinelPassword string
}

// String shows where the store is, without its password.
func (a address) String() string { return a.scheme + "://" + strings.Join(a.hosts, ",") }

func (a address) tlsConfig(o Options) *tls.Config {
	switch {
	case !a.secure:
		return nil
	case o.TLS != nil:
		return o.TLS.Clone()
	default:
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
}

var schemes = map[string]struct {
	kind   deployment
	secure bool
}{
	"redis": {single, false}, "rediss": {single, true},
	"redis+sentinel": {sentinel, false}, "rediss+sentinel": {sentinel, true},
	"redis+cluster": {cluster, false}, "rediss+cluster": {cluster, true},
}

// parseAddress reads a store URL by hand: net/url refuses several hosts with ports.
func parseAddress(s string) (address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	form, known := schemes[scheme]
	if !ok || !known {
		return address{}, fmt.Errorf("scheme %q: want redis, rediss, redis+sentinel or redis+cluster", scheme)
	}
	a := address{scheme: scheme, kind: form.kind, secure: form.secure}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if err := a.parseUser(authority[:i]); err != nil {
			return address{}, err
		}
		authority = authority[i+1:]
	}
	if err := a.parseHosts(authority); err != nil {
		return address{}, err
	}
	if err := a.parseQuery(query); err != nil {
		return address{}, err
	}
	return a, a.parsePath(path)
}

// parseUser never quotes what it was given: it holds the password.
func (a *address) parseUser(s string) error {
	user, password, both := strings.Cut(s, ":")
	if !both {
		user, password = "", user // redis://secret@host
	}
	var err1, err2 error
	a.user, err1 = url.PathUnescape(user)
	a.password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("user or password before @: percent-encoding is broken")
	}
	return nil
}

func (a *address) parseHosts(s string) error {
	port := "6379"
	if a.kind == sentinel {
		port = "26379"
	}
	for h := range strings.SplitSeq(s, ",") {
		if h = strings.TrimSpace(h); h == "" {
			return fmt.Errorf("host list %q: a host is empty", s)
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		if _, p, err := net.SplitHostPort(h); err != nil || !validPort(p) {
			return fmt.Errorf("host %q: want host or host:port", h)
		}
		a.hosts = append(a.hosts, h)
	}
	if a.kind == single && len(a.hosts) > 1 {
		return fmt.Errorf("%d hosts: several need redis+cluster or redis+sentinel", len(a.hosts))
	}
	return nil
}

func (a *address) parseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	for key, v := range values {
		switch key {
		case "tls":
			if a.secure, err = strconv.ParseBool(v[0]); err != nil {
				return fmt.Errorf("query tls=%q: want true or false", v[0])
			}
		case "db":
			if err := a.parseDB(v[0]); err != nil {
				return err
			}
		case "sentinel_user":
			a.sentinelUser = v[0]
		case "sentinel_password":
			a.sentinelPassword = v[0]
		default:
			return fmt.Errorf("query %q: want tls, db, sentinel_user or sentinel_password", key)
		}
	}
	return nil
}

func (a *address) parsePath(path string) error {
	switch a.kind {
	case sentinel:
		if path == "" || strings.Contains(path, "/") {
			return fmt.Errorf("path %q: want the master's name, as in redis+sentinel://host/mymaster", path)
		}
		a.master = path
	case cluster:
		if path != "" && path != "0" {
			return fmt.Errorf("path %q: a cluster has no databases", path)
		}
	default:
		if path != "" {
			return a.parseDB(path)
		}
	}
	return nil
}

func (a *address) parseDB(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<14 {
		return fmt.Errorf("database %q: want a small whole number", s)
	}
	if a.kind == cluster && n != 0 {
		return fmt.Errorf("database %d: a cluster has only 0", n)
	}
	a.db = n
	return nil
}

func validPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && 0 < n && n < 1<<16
}
