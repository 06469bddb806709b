package main

import (
	"net"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/servers"
)

const clusterSlots = 16384

// ownCluster is a Redis Cluster of three masters for one test, and returns its URL. The one
// that all tests share mirrors other tests' activities, which an instance would serve.
func ownCluster(t *testing.T) string {
	t.Helper()
	const masters = 3
	var hosts []string
	var nodes []*goredis.Client
	for n := range masters {
		r := servers.StartOwnRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		c := goredis.NewClient(&goredis.Options{Addr: r.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		hosts, nodes = append(hosts, r.Addr()), append(nodes, c)
		from, to := n*clusterSlots/masters, (n+1)*clusterSlots/masters-1
		if err := c.ClusterAddSlotsRange(t.Context(), from, to).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range hosts[1:] {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes[0].ClusterMeet(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range nodes {
		eventually(t, patience, "the cluster's nodes agree", func() bool {
			info, err := c.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(masters))
		})
	}
	return "redis+cluster://" + strings.Join(hosts, ",")
}

// TestFleetSaleOnCluster: the same sale, smaller, with the stock in a Redis Cluster.
func TestFleetSaleOnCluster(t *testing.T) {
	t.Parallel()
	needServers(t)
	f := newFleetOn(t, ownCluster(t))
	pair := []*instance{f.launch("a", nil), f.launch("b", nil)}
	for _, i := range pair {
		i.awaitReady()
	}
	f.soldOut(f.simulate(400, 40, pair).verdict(), 40)
}
