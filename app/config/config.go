// Package config is the one typed configuration of Sluice: defaults, a YAML file,
// the environment and flags, the later wins. Load reports every fault at once, each
// with the setting's name and where its value came from.
//
// settings.go is the table of all settings. A setting `listen.public` is the variable
// SLUICE_LISTEN_PUBLIC and the flag --listen.public.
package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/sluice-io/sluice/app/spelling"
)

// Embedded is the value of a store setting that is served in process.
const Embedded = "embedded"

// Config is every setting, typed and validated.
type Config struct {
	ListenPublic   string
	ListenInternal string
	ListenAdmin    string
	Roles          []string
	DataDir        string
	InstanceID     string
	EmbeddedPublic bool

	DemoStock    int64
	DemoOpensIn  time.Duration
	DemoDuration time.Duration

	RulesSource string // file, nacos
	RulesFile   string
	Nacos       Nacos

	LimiterRedis string // a URL, or Embedded
	StockRedis   string
	AuditRedis   string
	WaitReplicas int
	Queue        string // rocketmq, or Embedded
	RocketMQ     RocketMQ
	Orders       string // postgres://…, or Embedded

	TicketKeys      string // files; "" when embedded: made in DataDir
	NonceKey        string
	DrawKey         string
	SessionKeys     string
	SessionIssuer   string
	SessionAudience string
	AdminTokens     string
	PaymentKey      string
	TrustedCIDRs    []netip.Prefix
	IdentityHeader  string // of a gateway; "" believes sessions only

	LogLevel string

	// DrainNotice is how long a draining instance still takes requests while its readiness
	// says so.
	DrainNotice time.Duration

	origins map[string]string // setting -> where its value came from
	values  map[string]string // setting -> value as text
}

// Nacos is where the rules come from.
type Nacos struct {
	Servers   []string
	Namespace string
	Group     string
	DataID    string
	Username  string
	Password  string
}

// RocketMQ is where order messages go.
type RocketMQ struct {
	NameServers []string
	AccessKey   string
	SecretKey   string
	Topic       string
	Group       string
}

// Fault is one thing that is wrong, and where.
type Fault struct {
	Setting string
	Origin  string // "default", "file sluice.yaml", "env SLUICE_…", "flag --…"
	Problem string
}

func (f Fault) String() string {
	if f.Origin == "" {
		return f.Setting + ": " + f.Problem
	}
	return fmt.Sprintf("%s: %s (from %s)", f.Setting, f.Problem, f.Origin)
}

// Faults are all the faults of one load.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// Sources is what a configuration is loaded from.
type Sources struct {
	File  string                           // path of a YAML file, "" for none
	Env   func(name string) (string, bool) // os.LookupEnv; also says whether an orchestrator runs us
	Flags map[string]string                // setting -> value, only those that were given
}

// Load merges the sources over the defaults and validates the whole. A non-nil error is
// Faults, or a file that could not be read. The configuration is returned even with
// faults, so that it can be printed.
func Load(s Sources) (*Config, error) {
	k := koanf.New(".")
	c := &Config{origins: map[string]string{}, values: map[string]string{}}
	var faults Faults

	defaults := map[string]any{}
	for _, set := range settings {
		defaults[set.name] = set.def
		c.origins[set.name] = "default"
	}
	if err := k.Load(confmap.Provider(defaults, "."), nil); err != nil {
		return c, err
	}
	if s.File != "" {
		fromFile := koanf.New(".")
		if err := fromFile.Load(file.Provider(s.File), yaml.Parser()); err != nil {
			return c, fmt.Errorf("config file %s: %w", s.File, err)
		}
		for name, value := range flat(fromFile.Raw()) {
			if lookup(name) == nil {
				faults = append(faults, Fault{name, "file " + s.File, "is not a setting" + suggestion(name)})
				continue
			}
			v, ok := text(value)
			if !ok {
				faults = append(faults, Fault{name, "file " + s.File, "must be one value or a list of values"})
				continue
			}
			c.set(k, name, v, "file "+s.File)
		}
	}
	for _, set := range settings {
		if v, ok := s.Env(set.env()); ok {
			c.set(k, set.name, v, "env "+set.env())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Flags)) {
		v := s.Flags[name]
		if lookup(name) == nil {
			faults = append(faults, Fault{name, "flag --" + name, "is not a setting" + suggestion(name)})
			continue
		}
		c.set(k, name, v, "flag --"+name)
	}
	for _, set := range settings {
		v := k.String(set.name)
		c.values[set.name] = v
		if err := set.read(c, v); err != nil {
			faults = append(faults, Fault{set.name, c.origins[set.name], err.Error()})
		}
	}
	_, orchestrated := s.Env(orchestratorVariable)
	faults = append(faults, c.validate(orchestrated, faults)...)
	if len(faults) > 0 {
		return c, faults
	}
	return c, nil
}

func (c *Config) set(k *koanf.Koanf, name, value, origin string) {
	_ = k.Load(confmap.Provider(map[string]any{name: value}, "."), nil) // a flat map of strings cannot fail
	c.origins[name] = origin
}

// flat lists a document's settings by name, in order. A name may be nested or written
// with dots, or half of it each.
func flat(doc map[string]any) iter.Seq2[string, any] {
	values := map[string]any{}
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for key, v := range m {
			name := prefix + key
			if inner, ok := v.(map[string]any); ok && lookup(name) == nil {
				walk(name+".", inner)
				continue
			}
			values[name] = v
		}
	}
	walk("", doc)
	return func(yield func(string, any) bool) {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !yield(name, values[name]) {
				return
			}
		}
	}
}

// text is a YAML value as the text that a flag would have; nothing is "".
func text(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case map[string]any:
		return "", false
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			var ok bool
			if parts[i], ok = text(e); !ok {
				return "", false
			}
		}
		return strings.Join(parts, ","), true
	default:
		return fmt.Sprint(v), true
	}
}

// UnknownVariables lists what is wrong with SLUICE_ variables that are no setting: a typo
// would otherwise be a default in disguise. known are the variables of other commands.
func UnknownVariables(environ []string, known ...string) []string {
	names := slices.Clone(known)
	for _, s := range settings {
		names = append(names, s.env())
	}
	out := []string{}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "SLUICE_") || slices.Contains(names, name) {
			continue
		}
		hint := "`sluice config print` lists the settings"
		if near := spelling.Nearest(name, slices.Values(names)); near != "" {
			hint = "did you mean " + near + "?"
		}
		out = append(out, name+" is set but is no setting; "+hint)
	}
	slices.Sort(out)
	return out
}

// production are the settings that make a production service. All or none: half of them
// would be a production service that forgets at the next restart.
func (c *Config) production() (given, missing []string) {
	for _, p := range []struct {
		name string
		on   bool
	}{
		{"limiter.redis", c.LimiterRedis != Embedded},
		{"stock.redis", c.StockRedis != Embedded},
		{"queue", c.Queue == "rocketmq"}, // a word that is none is its own fault
		{"orders", c.Orders != Embedded},
		{"rules.source", c.RulesSource == "nacos" || c.RulesSource == "zookeeper"},
	} {
		if p.on {
			given = append(given, p.name)
		} else {
			missing = append(missing, p.name)
		}
	}
	return given, missing
}

// IsEmbedded reports whether this is an embedded service.
func (c *Config) IsEmbedded() bool {
	given, _ := c.production()
	return len(given) == 0
}

// orchestratorVariable is set in every pod of Kubernetes.
const orchestratorVariable = "KUBERNETES_SERVICE_HOST"

// validate looks at the settings together. What is wrong by itself is in wrong, and not
// faulted twice.
func (c *Config) validate(orchestrated bool, wrong Faults) Faults {
	var f Faults
	given, missing := c.production()
	if len(given) > 0 && len(missing) > 0 {
		since := strings.Join(given, ", ") + " say production"
		if len(given) == 1 {
			since = given[0] + " says production"
		}
		for _, name := range missing {
			switch {
			case slices.ContainsFunc(wrong, func(w Fault) bool { return w.Setting == name }):
			case c.origins[name] == "default":
				f = append(f, Fault{name, "", "must be given too, since " + since})
			default:
				f = append(f, Fault{name, c.origins[name], fmt.Sprintf("must be given too, and not as %q, since %s", c.values[name], since)})
			}
		}
	}
	if len(given) > 0 {
		for _, key := range []struct{ name, value string }{
			{"ticket.keys", c.TicketKeys}, {"nonce.key", c.NonceKey}, {"draw.key", c.DrawKey},
			{"session.keys", c.SessionKeys}, {"admin.tokens", c.AdminTokens}, {"payment.key", c.PaymentKey},
		} {
			switch {
			case key.value != "":
			case key.name == "admin.tokens":
				f = append(f, Fault{key.name, "", "is required in production: a file of token hashes (`sluice key token --tokens FILE` makes one, and the token)"})
			default:
				f = append(f, Fault{key.name, "", "is required in production: a key file (`sluice key new --out FILE` makes one)"})
			}
		}
	}
	if c.RulesSource == "nacos" && len(c.Nacos.Servers) == 0 {
		f = append(f, Fault{"nacos.servers", c.origins["nacos.servers"], "is required with rules.source nacos, for example 127.0.0.1:8848"})
	}
	if c.Queue == "rocketmq" && len(c.RocketMQ.NameServers) == 0 {
		f = append(f, Fault{"rocketmq.name_servers", c.origins["rocketmq.name_servers"], "is required with queue rocketmq, for example 127.0.0.1:9876"})
	}
	if len(given) == 0 && !c.EmbeddedPublic {
		if orchestrated {
			f = append(f, Fault{"embedded_public", c.origins["embedded_public"], "an embedded service keeps its stock in memory and does not start in an orchestrator; give the production settings, or --embedded-public"})
		}
		for _, l := range []struct{ name, addr string }{{"listen.public", c.ListenPublic}, {"listen.internal", c.ListenInternal}, {"listen.admin", c.ListenAdmin}} {
			if !loopback(l.addr) {
				f = append(f, Fault{l.name, c.origins[l.name], "must be a loopback address in embedded mode, or give --embedded-public"})
			}
		}
	}
	return f
}

// Setting is one effective setting, for printing.
type Setting struct {
	Name   string `json:"setting"`
	Value  string `json:"value"`
	Origin string `json:"from"`
	Doc    string `json:"meaning"`
}

// Print lists the effective settings; secrets are masked. A default that depends on
// other settings is spelled out.
func (c *Config) Print() []Setting {
	out := make([]Setting, 0, len(settings))
	for _, s := range settings {
		v := c.values[s.name]
		switch {
		case s.name == "edge.trusted_cidrs" && v == "":
			v = joined(c.TrustedCIDRs)
		case s.name == "drain.notice" && v == "":
			v = c.DrainNotice.String()
		case s.name == "rules.file" && v == "" && c.RulesSource == "file":
			v = filepath.Join(c.DataDir, "rules.json")
		}
		if s.secret {
			v = mask(v)
		}
		out = append(out, Setting{s.name, v, c.origins[s.name], s.doc})
	}
	return out
}

// Shown is Print by name.
func (c *Config) Shown() map[string]Setting {
	out := make(map[string]Setting, len(settings))
	for _, s := range c.Print() {
		out[s.Name] = s
	}
	return out
}

func joined(prefixes []netip.Prefix) string {
	if len(prefixes) == 0 {
		return "none"
	}
	parts := make([]string, len(prefixes))
	for i, p := range prefixes {
		parts[i] = p.String()
	}
	return strings.Join(parts, ",")
}

// Describe lists every setting with its default, for help texts and flags.
func Describe() []Setting {
	out := make([]Setting, 0, len(settings))
	for _, s := range settings {
		out = append(out, Setting{s.name, s.def, s.env(), s.doc})
	}
	return out
}

// mask hides a secret, and in a URL the password and every parameter: a store's URL may
// carry one as a parameter too, under a name that only its driver knows. What cannot be
// told apart is hidden whole.
func mask(v string) string {
	if v == "" || v == Embedded {
		return v
	}
	scheme, rest, ok := strings.Cut(v, "://")
	if !ok {
		return "***"
	}
	userinfo, host, ok := cutLast(rest, "@") // the last: a password may hold one
	if !ok {
		userinfo, host = "", rest
	}
	if strings.ContainsAny(userinfo, "/?") || strings.Contains(host, "://") {
		return scheme + "://***"
	}
	if user, _, ok := strings.Cut(userinfo, ":"); ok {
		userinfo = user + ":***@"
	} else if userinfo != "" {
		userinfo = "***@"
	}
	host, _, hidden := strings.Cut(host, "#")
	if hidden {
		host += "#***"
	}
	if before, query, ok := strings.Cut(host, "?"); ok {
		params := strings.Split(query, "&")
		for i, p := range params {
			name, _, _ := strings.Cut(p, "=")
			params[i] = name + "=***"
		}
		host = before + "?" + strings.Join(params, "&")
	}
	return scheme + "://" + userinfo + host
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func loopback(addr string) bool {
	host, _, ok := cutLast(addr, ":")
	if !ok {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// suggestion names the setting that was probably meant.
func suggestion(name string) string {
	names := func(yield func(string) bool) {
		for _, s := range settings {
			if !yield(s.name) {
				return
			}
		}
	}
	if near := spelling.Nearest(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return "; `sluice config print` lists them"
}

var errEmpty = errors.New("must not be empty")
