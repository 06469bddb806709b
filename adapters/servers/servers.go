// Package servers tells Go tests where the real servers of this folder listen.
//
// The addresses are those that `servers.sh up` (make servers-up) starts on loopback, unless a variable says otherwise.
// The variables are named apart from the service's own settings (SLUICE_STOCK_REDIS and so on): a test of an embedded
// instance must not turn into a production instance because the servers happen to be up.
package servers

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// LimiterRedis is the URL of the limiter's Redis, which has no persistence. Variable: SLUICE_TEST_LIMITER_REDIS.
func LimiterRedis() string {
	return or("SLUICE_TEST_LIMITER_REDIS", "redis://127.0.0.1:16379")
}

// StockRedis is the URL of the stock's Redis, which keeps an append-only file. Variable: SLUICE_TEST_STOCK_REDIS.
func StockRedis() string {
	return or("SLUICE_TEST_STOCK_REDIS", "redis://127.0.0.1:16380")
}

// ClusterRedis is the URL of a Redis Cluster of three masters. Variable: SLUICE_TEST_CLUSTER_REDIS.
func ClusterRedis() string {
	return or("SLUICE_TEST_CLUSTER_REDIS", "redis+cluster://127.0.0.1:17000,127.0.0.1:17001,127.0.0.1:17002")
}

// Postgres is the URL of an empty database whose user may create schemas and databases of its own.
// Variable: SLUICE_TEST_POSTGRES.
func Postgres() string {
	return or("SLUICE_TEST_POSTGRES", "postgres://sluice:sluice@127.0.0.1:15432/sluice?sslmode=disable")
}

// RocketMQ is the address of the name server, several divided by commas. Package rocketmqadmin makes topics and groups.
// Variable: SLUICE_TEST_ROCKETMQ.
func RocketMQ() string {
	return or("SLUICE_TEST_ROCKETMQ", "127.0.0.1:19876")
}

// RocketMQBroker is the address of the broker: 1035 above that of its name server.
func RocketMQBroker(t testing.TB) string {
	t.Helper()
	names, err := netip.ParseAddrPort(RocketMQ())
	if err != nil {
		t.Fatalf("SLUICE_TEST_ROCKETMQ: the tests of a broker that breaks want one address of numbers: %v", err)
	}
	return netip.AddrPortFrom(names.Addr(), names.Port()+1035).String()
}

// Nacos is host:port of the HTTP interface; gRPC is 1000 above. Variable: SLUICE_TEST_NACOS.
func Nacos() string {
	return or("SLUICE_TEST_NACOS", "127.0.0.1:18848")
}

// Dir is where the servers keep what they write, and the keys of production mode (Dir()/keys).
// Variable: SLUICE_SERVERS_DIR. The default is the one of lib.sh.
func Dir() string {
	if dir := os.Getenv("SLUICE_SERVERS_DIR"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/cache/sluice-servers" // user postgres cannot search root's home
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "sluice-servers")
}

// Need says that a test needs the server at address, one of the values above. The test is skipped under -short and
// fails when the server is away: a suite that skips what it cannot reach proves nothing.
func Need(t testing.TB, address string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server: left out by -short")
	}
	// of several hosts the first one stands for all
	host, _, _ := strings.Cut(address, ",")
	if strings.Contains(host, "://") {
		u, err := url.Parse(host)
		if err != nil {
			t.Fatalf("address of a server: %v", err)
		}
		host = u.Host
	}
	conn, err := net.DialTimeout("tcp", host, 2*time.Second)
	if err != nil {
		t.Fatalf("%v: start the servers by `make servers-up`", err)
	}
	_ = conn.Close()
}

func or(variable, value string) string {
	if v := os.Getenv(variable); v != "" {
		return v
	}
	return value
}
