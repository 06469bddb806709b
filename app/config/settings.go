package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is one line of the table.
type setting struct {
	name   string
	def    string
	doc    string
	secret bool
	read   func(c *Config, v string) error
}

func (s *setting) env() string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(s.name, ".", "_"))
}

func lookup(name string) *setting {
	i := slices.IndexFunc(settings, func(s *setting) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return settings[i]
}

// settings is the whole of what can be configured. The names are a contract.
var settings = []*setting{
	{name: "listen.public", def: "127.0.0.1:8080", doc: "address of the public API and page; port 0 picks a free one", read: address(func(c *Config) *string { return &c.ListenPublic })},
	{name: "listen.internal", def: "127.0.0.1:8081", doc: "address of payment callback, health and metrics", read: address(func(c *Config) *string { return &c.ListenInternal })},
	{name: "listen.admin", def: "127.0.0.1:8082", doc: "address of the admin API", read: address(func(c *Config) *string { return &c.ListenAdmin })},
	{name: "roles", def: "gateway,orders,control", doc: "what this process does", read: readRoles},
	{name: "data.dir", def: ".sluice", doc: "SQLite file, last-good rules, keys made for embedded use; locked", read: nonempty(func(c *Config) *string { return &c.DataDir })},
	{name: "instance.id", def: "", doc: "shown in metrics and status; random when empty", read: plain(func(c *Config) *string { return &c.InstanceID })},
	{name: "embedded_public", def: "false", doc: "let an embedded service listen beyond loopback", read: boolean(func(c *Config) *bool { return &c.EmbeddedPublic })},
	{name: "log.level", def: "info", doc: "debug, info, warn, error", read: oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},

	{name: "demo.stock", def: "1000", doc: "units of the demonstration activity (embedded)", read: integer(func(c *Config) *int64 { return &c.DemoStock }, 1, 1_000_000_000)},
	{name: "demo.opens_in", def: "5s", doc: "when it opens, from the start", read: duration(func(c *Config) *time.Duration { return &c.DemoOpensIn }, 2*time.Second, 24*time.Hour)},
	{name: "demo.duration", def: "10m", doc: "how long it stays open", read: duration(func(c *Config) *time.Duration { return &c.DemoDuration }, 10*time.Second, 30*24*time.Hour)},

	{name: "rules.source", def: "file", doc: "file or nacos", read: readRulesSource},
	{name: "rules.file", def: "", doc: "rule bundle; <data.dir>/rules.json when empty", read: plain(func(c *Config) *string { return &c.RulesFile })},
	{name: "nacos.servers", def: "", doc: "host:port, comma-separated", read: hosts(func(c *Config) *[]string { return &c.Nacos.Servers })},
	{name: "nacos.namespace", def: "public", doc: "namespace id", read: plain(func(c *Config) *string { return &c.Nacos.Namespace })},
	{name: "nacos.group", def: "DEFAULT_GROUP", doc: "group", read: nonempty(func(c *Config) *string { return &c.Nacos.Group })},
	{name: "nacos.data_id", def: "sluice.rules", doc: "data id of the bundle", read: nonempty(func(c *Config) *string { return &c.Nacos.DataID })},
	{name: "nacos.username", def: "", doc: "user, when Nacos asks for one", read: plain(func(c *Config) *string { return &c.Nacos.Username })},
	{name: "nacos.password", def: "", doc: "its password", secret: true, read: plain(func(c *Config) *string { return &c.Nacos.Password })},

	{name: "limiter.redis", def: Embedded, doc: "limiter store: redis://, redis+sentinel://, redis+cluster://", secret: true, read: redisURL(func(c *Config) *string { return &c.LimiterRedis })},
	{name: "stock.redis", def: Embedded, doc: "stock store; must never evict", secret: true, read: redisURL(func(c *Config) *string { return &c.StockRedis })},
	{name: "stock.wait_replicas", def: "0", doc: "replicas that must hold a reservation whose message was not acknowledged", read: func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 8 {
			return errors.New("must be a whole number of 0 to 8")
		}
		c.WaitReplicas = n
		return nil
	}},
	{name: "audit.redis", def: Embedded, doc: "audit store", secret: true, read: redisURL(func(c *Config) *string { return &c.AuditRedis })},
	{name: "queue", def: Embedded, doc: "embedded or rocketmq", read: oneOf(func(c *Config) *string { return &c.Queue }, Embedded, "rocketmq")},
	{name: "rocketmq.name_servers", def: "", doc: "host:port, comma-separated", read: hosts(func(c *Config) *[]string { return &c.RocketMQ.NameServers })},
	{name: "rocketmq.access_key", def: "", doc: "access key, when the broker asks for one", read: plain(func(c *Config) *string { return &c.RocketMQ.AccessKey })},
	{name: "rocketmq.secret_key", def: "", doc: "its secret", secret: true, read: plain(func(c *Config) *string { return &c.RocketMQ.SecretKey })},
	{name: "rocketmq.topic", def: "seckill_order", doc: "topic of order messages", read: nonempty(func(c *Config) *string { return &c.RocketMQ.Topic })},
	{name: "rocketmq.group", def: "seckill_order_consumer", doc: "group of order consumers", read: nonempty(func(c *Config) *string { return &c.RocketMQ.Group })},
	{name: "orders", def: Embedded, doc: "embedded (SQLite) or postgres://…", secret: true, read: func(c *Config, v string) error {
		c.Orders = v
		if v == Embedded {
			return nil
		}
		if u, err := url.Parse(v); err != nil || u.Host == "" || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return errors.New("must be embedded or postgres://user:password@host:port/database")
		}
		return nil
	}},

	{name: "ticket.keys", def: "", doc: "key set of tickets and passes; made when embedded", read: plain(func(c *Config) *string { return &c.TicketKeys })},
	{name: "nonce.key", def: "", doc: "key of nonces and reservation ids", read: plain(func(c *Config) *string { return &c.NonceKey })},
	{name: "draw.key", def: "", doc: "key of the draw's secret", read: plain(func(c *Config) *string { return &c.DrawKey })},
	{name: "session.keys", def: "", doc: "key set of sessions", read: plain(func(c *Config) *string { return &c.SessionKeys })},
	{name: "session.issuer", def: "", doc: "iss of sessions, checked when set", read: plain(func(c *Config) *string { return &c.SessionIssuer })},
	{name: "session.audience", def: "", doc: "aud of sessions, checked when set", read: plain(func(c *Config) *string { return &c.SessionAudience })},
	{name: "admin.tokens", def: "", doc: "file of lines: operator sha256:HEX or viewer sha256:HEX; made when embedded", read: plain(func(c *Config) *string { return &c.AdminTokens })},
	{name: "payment.key", def: "", doc: "key of the payment callback; made when embedded", read: plain(func(c *Config) *string { return &c.PaymentKey })},
	{name: "edge.identity_header", def: "", doc: "header in which a gateway among the trusted peers names the user it has verified, and which it strips from its clients; empty: sessions only", read: plain(func(c *Config) *string { return &c.IdentityHeader })},
	// The defaults of these two depend on settings above them.
	{name: "edge.trusted_cidrs", def: "", doc: "peers whose X-Forwarded-For is believed; embedded: loopback, production: none", read: readCIDRs},
	{name: "drain.notice", def: "", doc: "how long readiness says \"draining\" while requests are still taken, so that balancers leave first, 0s to 2s; embedded: 0s, production: 1s", read: readDrainNotice},
}

func plain(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error { *at(c) = v; return nil }
}

func nonempty(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*at(c) = v
		if v == "" {
			return errEmpty
		}
		return nil
	}
}

func oneOf(at func(*Config) *string, words ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*at(c) = v
		if !slices.Contains(words, v) {
			return fmt.Errorf("must be one of %s, not %q", strings.Join(words, ", "), v)
		}
		return nil
	}
}

// readRulesSource knows a word that is not served yet, and says so.
func readRulesSource(c *Config, v string) error {
	if v == "zookeeper" {
		c.RulesSource = v
		return errors.New("zookeeper is not served by this version; use file or nacos")
	}
	return oneOf(func(c *Config) *string { return &c.RulesSource }, "file", "nacos")(c, v)
}

func boolean(at func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("must be true or false, not %q", v)
		}
		*at(c) = b
		return nil
	}
}

func integer(at func(*Config) *int64, lo, hi int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("must be a whole number of %d to %d, not %q", lo, hi, v)
		}
		*at(c) = n
		return nil
	}
}

func duration(at func(*Config) *time.Duration, lo, hi time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < lo || d > hi {
			return fmt.Errorf("must be a duration of %s to %s such as 5s or 10m, not %q", lo, hi, v)
		}
		*at(c) = d
		return nil
	}
}

func address(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*at(c) = v
		_, port, ok := cutLast(v, ":")
		if n, err := strconv.ParseUint(port, 10, 16); !ok || err != nil || n > 65535 {
			return fmt.Errorf("must be host:port with a port of 0 to 65535, not %q", v)
		}
		return nil
	}
}

func hosts(at func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*at(c) = nil
		for part := range strings.SplitSeq(v, ",") {
			part = strings.TrimSpace(part)
			if part == "" {
				continue
			}
			if _, port, ok := cutLast(part, ":"); !ok || port == "" {
				return fmt.Errorf("must be host:port, comma-separated; %q has no port", part)
			}
			*at(c) = append(*at(c), part)
		}
		return nil
	}
}

func redisURL(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*at(c) = v
		if v == Embedded {
			return nil
		}
		scheme, host, _ := strings.Cut(v, "://")
		if host == "" || !slices.Contains([]string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}, scheme) {
			return errors.New("must be embedded, redis://…, redis+sentinel://… or redis+cluster://host,host")
		}
		return nil
	}
}

func readRoles(c *Config, v string) error {
	c.Roles = nil
	for part := range strings.SplitSeq(v, ",") {
		part = strings.TrimSpace(part)
		if !slices.Contains([]string{"gateway", "orders", "control"}, part) {
			return fmt.Errorf("must be some of gateway, orders, control; %q is none of them", part)
		}
		if !slices.Contains(c.Roles, part) {
			c.Roles = append(c.Roles, part)
		}
	}
	return nil
}

// maxDrainNotice leaves requests under way the most of the 5 s that a drain may take.
const maxDrainNotice = 2 * time.Second

func readDrainNotice(c *Config, v string) error {
	if v == "" {
		if !c.IsEmbedded() {
			c.DrainNotice = time.Second
		}
		return nil
	}
	return duration(func(c *Config) *time.Duration { return &c.DrainNotice }, 0, maxDrainNotice)(c, v)
}

func readCIDRs(c *Config, v string) error {
	c.TrustedCIDRs = nil
	switch v {
	case "none":
		return nil
	case "":
		if c.IsEmbedded() {
			c.TrustedCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		}
		return nil
	}
	for part := range strings.SplitSeq(v, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("must be CIDRs such as 10.0.0.0/8, comma-separated, or none; %q is neither", strings.TrimSpace(part))
		}
		if p.Bits() == 0 {
			return fmt.Errorf("%s would let every client name its own address", p)
		}
		c.TrustedCIDRs = append(c.TrustedCIDRs, p.Masked())
	}
	return nil
}

// Has reports whether this process has the role.
func (c *Config) Has(role string) bool { return slices.Contains(c.Roles, role) }
