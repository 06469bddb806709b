package redis

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

func TestStockEmbedded(t *testing.T) {
	c := openEmbeddedStock(t)
	conformance.Stock(t, func(*testing.T) conformance.StockBackend { return stockBackend(c) })
}

func TestStockRedis(t *testing.T) {
	c := openStock(t, servers.StockRedis())
	conformance.Stock(t, func(*testing.T) conformance.StockBackend { return stockBackend(c) })
}

func TestStockCluster(t *testing.T) {
	c := openStock(t, servers.ClusterRedis())
	conformance.Stock(t, func(*testing.T) conformance.StockBackend { return stockBackend(c) })
}

func stockBackend(c goredis.UniversalClient) conformance.StockBackend {
	s := NewStock(c, StockOptions{})
	return conformance.StockBackend{
		Stock: s,
		Close: func(ctx context.Context, spec admission.StockSpec) error {
			_, err := s.CloseSKU(ctx, spec)
			return err
		},
		Reopen: func(ctx context.Context, ref admission.SKURef) error { return s.Reopen(ctx, ref, 0) },
		Lose: func(ctx context.Context, ref admission.SKURef) error {
			return c.Del(ctx, keysOf(ref).stock()).Err()
		},
		LoseKey: func(ctx context.Context, ref admission.SKURef, name string) error {
			return c.Del(ctx, "inv:"+ref.Tag()+":"+name).Err()
		},
		Scribble: func(ctx context.Context, ref admission.SKURef, field, value string) error {
			return c.HSet(ctx, keysOf(ref).stock(), field, value).Err()
		},
		Expire: func(ctx context.Context, ref admission.SKURef, user, request string) error {
			return c.Del(ctx, keysOf(ref).request(user, request)).Err()
		},
	}
}

func openEmbeddedStock(t *testing.T) goredis.UniversalClient {
	t.Helper()
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return openURL(t, s.URL())
}

func openStock(t *testing.T, url string) goredis.UniversalClient {
	t.Helper()
	servers.Need(t, url)
	return openURL(t, url)
}

func openURL(t *testing.T, url string) goredis.UniversalClient {
	t.Helper()
	c, err := Open(t.Context(), url, Options{Name: "stock", Timeout: busy, PoolTimeout: busy, DialTimeout: busy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
