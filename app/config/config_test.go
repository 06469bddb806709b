package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// env is an environment of exactly these variables.
func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads and returns the faults as "setting: problem".
func load(t *testing.T, file string, vars, flags map[string]string) (*Config, []string) {
	t.Helper()
	s := Sources{Env: env(vars), Flags: flags}
	if file != "" {
		s.File = write(t, file)
	}
	c, err := Load(s)
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var out []string
	for _, f := range faults {
		out = append(out, f.Setting+": "+f.Problem)
	}
	return c, out
}

// production is a whole production configuration.
func production() map[string]string {
	return map[string]string{
		"limiter.redis": "redis://h:1", "stock.redis": "redis+cluster://h:1,h:2", "queue": "rocketmq", "rocketmq.name_servers": "h:9876",
		"orders": "postgres://u:p@h/db", "rules.source": "nacos", "nacos.servers": "h:8848",
		"ticket.keys": "t", "nonce.key": "n", "draw.key": "d", "session.keys": "s", "admin.tokens": "a", "payment.key": "p",
	}
}

// TestDefaults: what the documentation promises of a service that was told nothing.
func TestDefaults(t *testing.T) {
	c, faults := load(t, "", nil, nil)
	if faults != nil || !c.IsEmbedded() {
		t.Fatalf("faults %v, embedded %v", faults, c.IsEmbedded())
	}
	for name, pair := range map[string][2]any{
		"listen.public":   {c.ListenPublic, "127.0.0.1:8080"},
		"listen.internal": {c.ListenInternal, "127.0.0.1:8081"},
		"listen.admin":    {c.ListenAdmin, "127.0.0.1:8082"},
		"data.dir":        {c.DataDir, ".sluice"},
		"demo.stock":      {c.DemoStock, int64(1000)},
		"demo.opens_in":   {c.DemoOpensIn, 5 * time.Second},
		"demo.duration":   {c.DemoDuration, 10 * time.Minute},
		"rules.source":    {c.RulesSource, "file"},
		"nacos.namespace": {c.Nacos.Namespace, "public"},
		"nacos.group":     {c.Nacos.Group, "DEFAULT_GROUP"},
		"nacos.data_id":   {c.Nacos.DataID, "sluice.rules"},
		"limiter.redis":   {c.LimiterRedis, Embedded},
		"stock.redis":     {c.StockRedis, Embedded},
		"audit.redis":     {c.AuditRedis, Embedded},
		"wait_replicas":   {c.WaitReplicas, 0},
		"queue":           {c.Queue, Embedded},
		"orders":          {c.Orders, Embedded},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v by default, want %v", name, pair[0], pair[1])
		}
	}
	if !slices.Equal(c.Roles, []string{"gateway", "orders", "control"}) || !c.Has("control") || c.Has("x") {
		t.Errorf("roles %v", c.Roles)
	}
}

// TestPrecedence: file, then environment, then flags; each value says where it came from.
func TestPrecedence(t *testing.T) {
	file := "demo:\n  stock: 1\n  opens_in: 3s\nlog.level: warn\n"
	c, faults := load(t, file, map[string]string{"SLUICE_DEMO_STOCK": "2", "SLUICE_LOG_LEVEL": "error"}, map[string]string{"demo.stock": "3"})
	if faults != nil {
		t.Fatal(faults)
	}
	if c.DemoStock != 3 || c.LogLevel != "error" || c.DemoOpensIn != 3*time.Second || c.DemoDuration != 10*time.Minute {
		t.Errorf("stock %d, level %s, opens in %s", c.DemoStock, c.LogLevel, c.DemoOpensIn)
	}
	from := map[string]string{}
	for _, s := range c.Print() {
		from[s.Name] = strings.Fields(s.Origin)[0]
	}
	for name, want := range map[string]string{"demo.stock": "flag", "log.level": "env", "demo.opens_in": "file", "demo.duration": "default"} {
		if from[name] != want {
			t.Errorf("%s came from %s, want %s", name, from[name], want)
		}
	}
}

// TestFileSpellings: names nested or dotted, lists or commas, nothing for nothing.
func TestFileSpellings(t *testing.T) {
	for _, file := range []string{
		"listen: {public: '127.0.0.1:1'}\nroles: [gateway, orders]\nrules: {file: }\n",
		"listen.public: 127.0.0.1:1\nroles: gateway, orders\nrules.file: ''\n",
		`{"listen": {"public": "127.0.0.1:1"}, "roles": ["gateway", "orders"]}`,
	} {
		c, faults := load(t, file, nil, nil)
		if faults != nil || c.ListenPublic != "127.0.0.1:1" || !slices.Equal(c.Roles, []string{"gateway", "orders"}) || c.RulesFile != "" {
			t.Errorf("%s: faults %v, listen %s, roles %v, rules.file %q", file, faults, c.ListenPublic, c.Roles, c.RulesFile)
		}
	}
	for _, file := range []string{"listen: [", "a: 1\na: 2\n", "- a\n"} {
		_, err := Load(Sources{File: write(t, file), Env: env(nil)})
		if err == nil || !strings.Contains(err.Error(), "sluice.yaml") {
			t.Errorf("%q: %v, want an error that names the file", file, err)
		}
	}
	if _, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml"), Env: env(nil)}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestAllFaultsAtOnce: everything that is wrong in one answer, each with its setting.
func TestAllFaultsAtOnce(t *testing.T) {
	file := `
listen: {public: nowhere, admin: "127.0.0.1:99999"}
demo: {stock: 0, opens_in: soon, duration: 1ns, stok: 5}
limiter: {redis: "http://h"}
queue: kafka
orders: mysql://h
roles: [gateway, janitor]
data.dir: ""
edge.trusted_cidrs: [10.0.0.0/8, ten]
stock.wait_replicas: 9
log: {level: loud, colour: red}
instance.id: {a: 1}
`
	_, faults := load(t, file, map[string]string{"SLUICE_EMBEDDED_PUBLIC": "perhaps"}, map[string]string{"lissten.public": "x"})
	for _, want := range []string{
		"listen.public: must be host:port", "listen.admin: must be host:port", "demo.stock: must be a whole number", "demo.opens_in: must be a duration",
		"demo.duration: must be a duration", "demo.stok: is not a setting; did you mean demo.stock?", "limiter.redis: must be embedded, redis://",
		"queue: must be one of", "orders: must be embedded or postgres://", `roles: must be some of gateway, orders, control; "janitor"`,
		"data.dir: must not be empty", `edge.trusted_cidrs: must be CIDRs`, "stock.wait_replicas: must be", "log.level: must be one of",
		"log.colour: is not a setting", "instance.id: must be one value", "embedded_public: must be true or false", "lissten.public: is not a setting; did you mean listen.public?",
	} {
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, want) }) {
			t.Errorf("no fault %q among\n%s", want, strings.Join(faults, "\n"))
		}
	}
	for _, f := range faults {
		if strings.Contains(f, "http://h") || strings.Contains(f, "mysql") {
			t.Errorf("a fault repeats what may be a secret: %s", f)
		}
	}
}

// TestHalfProduction: some production settings but not all: the rest is named.
func TestHalfProduction(t *testing.T) {
	for _, missing := range []string{"limiter.redis", "stock.redis", "queue", "orders", "rules.source"} {
		given := production()
		delete(given, missing)
		_, faults := load(t, "", nil, given)
		if len(faults) != 1 || !strings.HasPrefix(faults[0], missing+": must be given too") {
			t.Errorf("without %s: %v", missing, faults)
		}
	}
	_, faults := load(t, "", nil, map[string]string{"stock.redis": "redis://h:1"})
	for _, name := range []string{"limiter.redis", "queue", "orders", "rules.source", "ticket.keys", "nonce.key", "draw.key", "session.keys", "admin.tokens", "payment.key"} {
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, name+": ") }) {
			t.Errorf("only stock.redis: %s is not named", name)
		}
	}
	given := production()
	delete(given, "nacos.servers")
	delete(given, "rocketmq.name_servers")
	if _, faults := load(t, "", nil, given); len(faults) != 2 {
		t.Errorf("sources without addresses: %v", faults)
	}
	c, faults := load(t, "", map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, production())
	if faults != nil || c.IsEmbedded() {
		t.Errorf("production: %v", faults)
	}
	given = production()
	given["listen.public"] = "0.0.0.0:8080"
	if _, faults := load(t, "", nil, given); faults != nil {
		t.Errorf("production may listen anywhere: %v", faults)
	}
}

// TestFaultsSayWhatToDo: a fault names what was given and by whom, what makes the file that is
// missing, and each thing once; a source that is not served is not offered.
func TestFaultsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		vars, flags map[string]string
		want        []string // whole faults, as they are printed; in any order among others
		once        string   // a setting that has one fault
	}{
		{nil, map[string]string{"limiter.redis": "redis://h:1"}, []string{"stock.redis: must be given too, since limiter.redis says production"}, "stock.redis"},
		{map[string]string{"SLUICE_RULES_SOURCE": "file"}, map[string]string{"limiter.redis": "redis://h:1", "queue": "rocketmq", "rocketmq.name_servers": "h:1"}, []string{
			`rules.source: must be given too, and not as "file", since limiter.redis, queue say production (from env SLUICE_RULES_SOURCE)`,
		}, "rules.source"},
		{nil, map[string]string{"limiter.redis": "redis://h:1", "queue": "rocketmqq"}, []string{`queue: must be one of embedded, rocketmq, not "rocketmqq" (from flag --queue)`}, "queue"},
		{nil, map[string]string{"rules.source": "zookeeper"}, []string{"rules.source: zookeeper is not served by this version; use file or nacos (from flag --rules.source)"}, "rules.source"},
		{nil, map[string]string{"rules.source": "etcd"}, []string{`rules.source: must be one of file, nacos, not "etcd" (from flag --rules.source)`}, "rules.source"},
		{nil, map[string]string{"limiter.redis": "redis://h:1"}, []string{
			"admin.tokens: is required in production: a file of token hashes (`sluice key token --tokens FILE` makes one, and the token)",
			"payment.key: is required in production: a key file (`sluice key new --out FILE` makes one)",
		}, "admin.tokens"},
	} {
		_, err := Load(Sources{Env: env(c.vars), Flags: c.flags})
		var faults Faults
		if !errors.As(err, &faults) {
			t.Fatalf("%v: %v", c.flags, err)
		}
		lines := strings.Split(faults.Error(), "\n")
		for _, want := range c.want {
			if !slices.Contains(lines, want) {
				t.Errorf("no fault %q among\n%v", want, faults)
			}
		}
		n := 0
		for _, f := range faults {
			if f.Setting == c.once {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is faulted %d times:\n%v", c.once, n, faults)
		}
	}
	for _, s := range Describe() {
		if strings.Contains(s.Doc, "zookeeper") {
			t.Errorf("%s offers zookeeper, which is not served: %s", s.Name, s.Doc)
		}
	}
}

// TestEmbeddedStaysHome: embedded stores are reachable from this machine alone, and never
// run in an orchestrator unless somebody says so.
func TestEmbeddedStaysHome(t *testing.T) {
	for addr, home := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:80": true, "localhost:80": true, "[::1]:80": true, ":80": false, "0.0.0.0:80": false, "[::]:80": false,
		"10.0.0.1:80": false, "example.com:80": false, "[::ffff:10.0.0.1]:80": false,
	} {
		for _, name := range []string{"listen.public", "listen.internal", "listen.admin"} {
			_, faults := load(t, "", nil, map[string]string{name: addr})
			if (faults == nil) != home || !home && !strings.HasPrefix(faults[0], name+": must be a loopback address") {
				t.Errorf("%s %s: %v", name, addr, faults)
			}
			if _, faults := load(t, "", nil, map[string]string{name: addr, "embedded_public": "true"}); faults != nil {
				t.Errorf("%s %s with embedded_public: %v", name, addr, faults)
			}
		}
	}
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	if _, faults := load(t, "", pod, nil); len(faults) != 1 || !strings.Contains(faults[0], "--embedded-public") {
		t.Errorf("in a pod: %v", faults)
	}
	if _, faults := load(t, "", pod, map[string]string{"embedded_public": "true"}); faults != nil {
		t.Errorf("in a pod, on purpose: %v", faults)
	}
}

// TestTrustedCIDRs: embedded trusts loopback, production nobody, "none" nobody.
func TestTrustedCIDRs(t *testing.T) {
	for _, c := range []struct {
		value      string
		production bool
		want       string
	}{
		{"", false, "127.0.0.0/8,::1/128"},
		{"", true, "none"},
		{"none", false, "none"},
		{"none", true, "none"},
		{"10.1.2.3/8, fd00::1/8", true, "10.0.0.0/8,fd00::/8"},
	} {
		given := map[string]string{}
		if c.production {
			given = production()
		}
		if c.value != "" {
			given["edge.trusted_cidrs"] = c.value
		}
		cfg, faults := load(t, "", nil, given)
		if faults != nil || joined(cfg.TrustedCIDRs) != c.want {
			t.Errorf("%+v: %v, faults %v", c, cfg.TrustedCIDRs, faults)
		}
		i := slices.IndexFunc(cfg.Print(), func(s Setting) bool { return s.Name == "edge.trusted_cidrs" })
		if printed := cfg.Print()[i].Value; c.value == "" && printed != c.want {
			t.Errorf("%+v is printed as %q", c, printed)
		}
	}
	for _, bad := range []string{"0.0.0.0/0", "::/0", "10.0.0.1", "10.0.0.0/33", "10.0.0.0/8,", "all"} {
		if _, faults := load(t, "", nil, map[string]string{"edge.trusted_cidrs": bad}); len(faults) != 1 {
			t.Errorf("%s: %v", bad, faults)
		}
	}
}

// TestDrainNotice: an embedded service has no balancer in front of it and leaves at once.
func TestDrainNotice(t *testing.T) {
	for _, c := range []struct {
		value      string
		production bool
		want       time.Duration
	}{
		{"", false, 0},
		{"", true, time.Second},
		{"0s", true, 0},
		{"250ms", false, 250 * time.Millisecond},
		{"2s", true, 2 * time.Second},
	} {
		given := map[string]string{}
		if c.production {
			given = production()
		}
		if c.value != "" {
			given["drain.notice"] = c.value
		}
		cfg, faults := load(t, "", nil, given)
		if faults != nil || cfg.DrainNotice != c.want {
			t.Errorf("%+v: %v, faults %v", c, cfg.DrainNotice, faults)
		}
		i := slices.IndexFunc(cfg.Print(), func(s Setting) bool { return s.Name == "drain.notice" })
		if printed := cfg.Print()[i].Value; c.value == "" && printed != c.want.String() {
			t.Errorf("%+v is printed as %q", c, printed)
		}
	}
	for _, bad := range []string{"3s", "-1s", "soon"} {
		if _, faults := load(t, "", nil, map[string]string{"drain.notice": bad}); len(faults) != 1 {
			t.Errorf("%s: %v", bad, faults)
		}
	}
}

// TestMask: a secret is never printed, wherever in a value it stands.
func TestMask(t *testing.T) {
	for v, want := range map[string]string{
		"":                                 "",
		"embedded":                         "embedded",
		"SECRET":                           "***",
		"redis://h:1":                      "redis://h:1",
		"redis://u:SECRET@h:1/0":           "redis://u:***@h:1/0",
		"redis://:SECRET@h:1":              "redis://:***@h:1",
		"redis://SECRET@h:1":               "redis://***@h:1",
		"redis://u:SEC@RET@h:1":            "redis://u:***@h:1",
		"redis://u:SEC:RET@h:1":            "redis://u:***@h:1",
		"redis://u:SEC/RET@h:1":            "redis://***",
		"redis://u:SEC?RET@h:1":            "redis://***",
		"redis://u:SECRET#@h:1":            "redis://u:***@h:1",
		"redis+cluster://u:SECRET@a:1,b:2": "redis+cluster://u:***@a:1,b:2",
		"redis+sentinel://a:1/m?password=SECRET&db=1": "redis+sentinel://a:1/m?password=***&db=***",
		"redis://h:1?password=SEC@RET":                "redis://***",
		"postgres://h/db?user=u&password=SECRET":      "postgres://h/db?user=***&password=***",
		"postgres://h/db#SECRET":                      "postgres://h/db#***",
		"redis://a:SECRET@h,redis://b:SECRET@h":       "redis://***",
	} {
		if got := mask(v); got != want || strings.Contains(got, "SEC") || strings.Contains(got, "RET") {
			t.Errorf("%s is shown as %s, want %s", v, got, want)
		}
	}
	given := production()
	given["nacos.password"], given["rocketmq.secret_key"], given["limiter.redis"] = "SECRET", "SECRET", "redis://:SECRET@h:1"
	given["orders"], given["stock.redis"], given["audit.redis"] = "postgres://u:SECRET@h/db", "redis://u:SECRET@h:1", "SECRET"
	c, _ := load(t, "", nil, given)
	for _, s := range c.Print() {
		if strings.Contains(s.Value, "SECRET") {
			t.Errorf("%s prints its secret: %s", s.Name, s.Value)
		}
	}
}

// TestUnknownVariables: a typo in the environment is told, other programs' variables are not.
func TestUnknownVariables(t *testing.T) {
	got := UnknownVariables([]string{"SLUICE_LISTEN_PUBLIC=x", "SLUICE_LISTEN_PUBLICK=x", "SLUICE_ADMIN=x", "HOME=/", "SLUICE_A"}, "SLUICE_ADMIN")
	if want := []string{
		"SLUICE_A is set but is no setting; `sluice config print` lists the settings",
		"SLUICE_LISTEN_PUBLICK is set but is no setting; did you mean SLUICE_LISTEN_PUBLIC?",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestEverySettingIsWhole: a name, a meaning, a default that its own reader takes, and a
// variable that no other setting has.
func TestEverySettingIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings {
		if s.name == "" || s.doc == "" || s.read == nil || seen[s.env()] {
			t.Errorf("%+v", s)
		}
		seen[s.env()] = true
		if err := s.read(&Config{values: map[string]string{}}, s.def); err != nil {
			t.Errorf("%s does not take its own default %q: %v", s.name, s.def, err)
		}
	}
	if len(Describe()) != len(settings) {
		t.Error("Describe leaves settings out")
	}
}
