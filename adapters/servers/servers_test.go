package servers_test

import (
	"testing"

	"github.com/sluice-io/sluice/adapters/servers"
)

func TestAddressesFollowTheEnvironment(t *testing.T) {
	for variable, address := range map[string]func() string{
		"SLUICE_TEST_LIMITER_REDIS": servers.LimiterRedis,
		"SLUICE_TEST_STOCK_REDIS":   servers.StockRedis,
		"SLUICE_TEST_CLUSTER_REDIS": servers.ClusterRedis,
		"SLUICE_TEST_POSTGRES":      servers.Postgres,
		"SLUICE_TEST_ROCKETMQ":      servers.RocketMQ,
		"SLUICE_TEST_NACOS":         servers.Nacos,
		"SLUICE_SERVERS_DIR":        servers.Dir,
	} {
		t.Setenv(variable, "")
		if got := address(); got == "" {
			t.Errorf("%s: no default", variable)
		}
		t.Setenv(variable, "elsewhere")
		if got := address(); got != "elsewhere" {
			t.Errorf("%s: got %q", variable, got)
		}
	}
}

func TestEveryServerAnswers(t *testing.T) {
	for _, address := range []string{
		servers.LimiterRedis(), servers.StockRedis(), servers.ClusterRedis(),
		servers.Postgres(), servers.RocketMQ(), servers.Nacos(),
	} {
		servers.Need(t, address)
	}
}
