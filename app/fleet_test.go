package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/servers/rocketmqadmin"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/rules"
)

// The tests named TestFleet… and those beside them run the real binary in production mode on
// the real servers. Everything that an instance could share with another test is its own
// fleet's: two Redis servers, a database, a topic with its group, a data id in Nacos, keys.

// built is the program, built once for all tests of a run.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "under-test") // a name of its own among the processes of the machine
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if used.Load() {
		if path, err := built(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// fleet is the servers and settings that some instances share.
type fleet struct {
	t         *testing.T
	dir       string
	settings  map[string]string // of every instance
	limiter   *servers.OwnRedis
	limits    goredis.UniversalClient // the limiter's Redis, for the test's own eyes
	stock     goredis.UniversalClient
	orders    *pgx.Conn
	instances []*instance
}

// newFleet makes what a fleet needs; the stock is in a Redis of its own.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	needServers(t)
	return newFleetOn(t, servers.StartOwnRedis(t).URL())
}

// needServers fails the test when a server is missing, and leaves it out under -short.
func needServers(t *testing.T) {
	t.Helper()
	for _, address := range []string{servers.Postgres(), servers.RocketMQ(), servers.Nacos()} {
		servers.Need(t, address)
	}
}

// newFleetOn is newFleet with the stock at that URL.
func newFleetOn(t *testing.T, stock string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), limiter: servers.StartOwnRedis(t)}
	id := strings.ToLower(rand.Text()[:12])
	f.settings = map[string]string{
		"listen.public": "127.0.0.1:0", "listen.internal": "127.0.0.1:0", "listen.admin": "127.0.0.1:0",
		"limiter.redis": f.limiter.URL(), "stock.redis": stock,
		"queue": "rocketmq", "rocketmq.name_servers": servers.RocketMQ(),
		"rocketmq.topic": "test_fleet_" + id, "rocketmq.group": "test_fleet_consumer_" + id,
		"orders":       f.database("sluice_fleet_" + id),
		"rules.source": "nacos", "nacos.servers": servers.Nacos(), "nacos.data_id": "sluice.test.fleet." + id,
		"edge.trusted_cidrs": "127.0.0.0/8", // every simulated person has an address of their own
	}
	f.keys()
	if err := rocketmqadmin.CreateTopic(servers.RocketMQ(), f.settings["rocketmq.topic"], 4); err != nil {
		t.Fatal(err)
	}
	if err := rocketmqadmin.CreateGroup(servers.RocketMQ(), f.settings["rocketmq.group"]); err != nil {
		t.Fatal(err)
	}
	f.limits, f.stock = redisClient(t, f.limiter.URL()), redisClient(t, stock)
	f.publish(rules.DefaultDocument())
	t.Cleanup(func() { f.nacos(http.MethodDelete, url.Values{}) })
	return f
}

// keys writes the key files, and the token of an operator.
func (f *fleet) keys() {
	f.t.Helper()
	for _, name := range []string{"ticket.keys", "nonce.key", "draw.key", "session.keys", "payment.key"} {
		path := filepath.Join(f.dir, name+".json")
		if _, err := keys.LoadOrCreate(path, func() (keys.Key, error) { return keys.NewOct(name) }); err != nil {
			f.t.Fatal(err)
		}
		f.settings[name] = path
	}
	token := rand.Text()
	sum := sha256.Sum256([]byte(token))
	f.file("admin.token", token)
	f.settings["admin.tokens"] = f.file("admin.tokens", "operator sha256:"+hex.EncodeToString(sum[:])+"\n")
}

func (f *fleet) tokenFile() string { return filepath.Join(f.dir, "admin.token") }

// file writes a file into the fleet's folder.
func (f *fleet) file(name, content string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// database makes an empty database, which goes with the test, and returns its URL.
func (f *fleet) database(name string) string {
	f.t.Helper()
	u, err := url.Parse(servers.Postgres())
	if err != nil {
		f.t.Fatal(err)
	}
	admin := f.connect(u.String())
	if _, err := admin.Exec(f.t.Context(), "CREATE DATABASE "+name); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			f.t.Error(err)
		}
	})
	u.Path = "/" + name
	f.orders = f.connect(u.String())
	return u.String()
}

func (f *fleet) connect(url string) *pgx.Conn {
	f.t.Helper()
	conn, err := pgx.Connect(f.t.Context(), url)
	if err != nil {
		f.t.Fatalf("%v: start the servers by `make servers-up`", err)
	}
	f.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// redisClient is a client of the test's own, apart from the product's.
func redisClient(t *testing.T, address string) goredis.UniversalClient {
	t.Helper()
	scheme, hosts, _ := strings.Cut(address, "://")
	c := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: strings.Split(hosts, ","), IsClusterMode: scheme == "redis+cluster"})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// publish puts a document into Nacos as any of its clients may, unseen by us.
func (f *fleet) publish(document []byte) {
	f.t.Helper()
	if got := f.nacos(http.MethodPost, url.Values{"content": {string(document)}}); got != "true" {
		f.t.Fatalf("nacos answers a publish with %q", got)
	}
}

// nacos is one call of the server's HTTP interface on the fleet's data id.
func (f *fleet) nacos(method string, form url.Values) string {
	f.t.Helper()
	form.Set("dataId", f.settings["nacos.data_id"])
	form.Set("group", "DEFAULT_GROUP")
	target := "http://" + servers.Nacos() + "/nacos/v1/cs/configs"
	var content io.Reader
	if method == http.MethodPost {
		content = strings.NewReader(form.Encode())
	} else {
		target += "?" + form.Encode()
	}
	req, err := http.NewRequest(method, target, content)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=utf-8")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(body)
}

// command runs the binary with the fleet's settings and returns its exit code and what it
// printed, standard error last.
func (f *fleet) command(args ...string) (code int, out string) {
	f.t.Helper()
	cmd := exec.Command(program(f.t), args...)
	cmd.Dir, cmd.Env = f.dir, environment(f.settings, map[string]string{"admin.token.file": f.tokenFile()})
	code, out, err := finish(cmd, 2*patience)
	if err != nil {
		f.t.Fatal(err)
	}
	return code, out
}

// want runs a command that must end with that code, and returns what it printed.
func (f *fleet) want(code int, args ...string) string {
	f.t.Helper()
	got, out := f.command(args...)
	if got != code {
		f.t.Fatalf("sluice %s: exit %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// finish runs a command to its end; one that takes longer is killed, and an error.
func finish(cmd *exec.Cmd, within time.Duration) (code int, out string, err error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	late := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	out = stdout.String() + stderr.String()
	if !late.Stop() {
		return 0, out, fmt.Errorf("%s did not end within %v\n%s", strings.Join(cmd.Args, " "), within, out)
	}
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return 0, out, err
	}
	return cmd.ProcessState.ExitCode(), out, nil
}

// environment is this process's without settings of ours, and the given ones.
func environment(settings ...map[string]string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SLUICE_") {
			env = append(env, kv)
		}
	}
	for _, some := range settings {
		for name, value := range some {
			env = append(env, "SLUICE_"+strings.ToUpper(strings.ReplaceAll(name, ".", "_"))+"="+value)
		}
	}
	return env
}

// eventually polls until ok, and returns how long that took. What is waited for happens in
// other processes, which have no clock of ours.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
		<-tick.C
	}
	return time.Since(began)
}
