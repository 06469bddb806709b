package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options are the bounds of one store's client.
type Options struct {
	Name        string        // the store's metric label: "stock", "limiter", "audit"
	PoolSize    int           // connections to one node; default 64
	PoolTimeout time.Duration // longest wait for a free connection; default 100 ms
	DialTimeout time.Duration // of one connection attempt; default 500 ms
	Timeout     time.Duration // of one round trip, unless the context ends sooner; default 1 s
	Metrics     *Metrics      // nil counts nothing
	TLS         *tls.Config   // used when the URL asks for TLS; nil takes the system's roots
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "redis"
	}
	if o.PoolSize == 0 {
		o.PoolSize = 64
	}
	if o.PoolTimeout == 0 {
		o.PoolTimeout = 100 * time.Millisecond
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 500 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	return o
}

const (
	// maxRedirects bounds how often one command follows MOVED and ASK. It is not a
	// retry: a redirected command was not executed.
	maxRedirects = 3
	// clusterReload bounds how old the slot map may grow without an error that tells.
	clusterReload = 2 * time.Second
)

// Open connects to the store at url and pings it once. The forms are
//
//	redis://[user:password@]host[:port][/db]
//	redis+sentinel://[user:password@]host[:port],…/master[?db=0]
//	redis+cluster://[user:password@]host[:port],…
//
// with rediss… for TLS. An error names the part of the URL that is wrong, or wraps
// admission.ErrUnavailable; it never shows the password. The caller closes the client.
func Open(ctx context.Context, url string, o Options) (goredis.UniversalClient, error) {
	a, err := parseAddress(url)
	if err != nil {
		return nil, fmt.Errorf("%s store: %w", o.withDefaults().Name, err)
	}
	c := newClient(a, o.withDefaults())
	if err := c.Ping(ctx).Err(); err != nil {
		_ = c.Close()
		return nil, Classify("ping "+a.String(), err)
	}
	return c, nil
}

func newClient(a address, o Options) goredis.UniversalClient {
	var c goredis.UniversalClient
	watch := hook{metrics: o.Metrics.store(o.Name)}
	switch a.kind {
	case sentinel:
		c = goredis.NewFailoverClient(failoverOptions(a, o))
	case cluster:
		cc := goredis.NewClusterClient(clusterOptions(a, o))
		// A dead primary answers no MOVED: its silence must refresh the slot map.
		watch.unreachable = func(ctx context.Context) { cc.ReloadState(ctx) }
		c = cc
	default:
		c = goredis.NewClient(singleOptions(a, o))
	}
	c.AddHook(watch)
	return c
}

// The three option sets say the same thing in three types: nothing is re-sent
// (MaxRetries -1), contexts bound every wait, plain RESP2 without side channels.

func singleOptions(a address, o Options) *goredis.Options {
	return &goredis.Options{
		Addr: a.hosts[0], Username: a.user, Password: a.password, DB: a.db, TLSConfig: a.tlsConfig(o),
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: o.DialTimeout, DialerRetries: 1, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: quiet(),
	}
}

func failoverOptions(a address, o Options) *goredis.FailoverOptions {
	return &goredis.FailoverOptions{
		MasterName: a.master, SentinelAddrs: a.hosts,
		SentinelUsername: a.sentinelUser, SentinelPassword: a.sentinelPassword,
		Username: a.user, Password: a.password, DB: a.db, TLSConfig: a.tlsConfig(o),
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: o.DialTimeout, DialerRetries: 1, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		Protocol: 2, DisableIdentity: true,
	}
}

func clusterOptions(a address, o Options) *goredis.ClusterOptions {
	return &goredis.ClusterOptions{
		Addrs: a.hosts, Username: a.user, Password: a.password, TLSConfig: a.tlsConfig(o),
		// The cluster client counts retries and redirects together; Script's commands
		// refuse the retries one by one (NoRetry) and keep the redirects.
		MaxRedirects: maxRedirects, MaxRetries: -1, ContextTimeoutEnabled: true,
		ClusterStateReloadInterval: clusterReload, DisableRoutingPolicies: true,
		DialTimeout: o.DialTimeout, DialerRetries: 1, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: quiet(),
	}
}

func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
