package redis

import (
	"errors"
	"maps"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/app/admission"
)

// Whichever key of a SKU holds something else: reserve and effect refuse, and have left
// nothing written. Reserve looks at attempts once somebody was freed, and not before.
func TestWrongTypesAreRefusedBeforeTheFirstWrite(t *testing.T) {
	for _, c := range []goredis.UniversalClient{openEmbeddedStock(t), openStock(t, servers.StockRedis())} {
		for i := range 2 * 8 {
			i, freed := i%8, i/8
			s := NewStock(c, StockOptions{})
			spec := freshSpec(1) // the last unit: every key is written
			if _, err := s.Warm(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			a := someArgs()
			a.Ref = spec.Ref
			k := keysOf(spec.Ref)
			keys := k.all(a.UserID, a.RequestID)
			if err := c.HSet(t.Context(), k.stock(), "freed", freed).Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.Del(t.Context(), keys[i]).Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.SAdd(t.Context(), keys[i], "x").Err(); err != nil {
				t.Fatal(err)
			}
			before := content(t, c, keys)
			if keys[i] == k.attempts() && freed == 0 {
				continue
			}
			if r, err := s.Reserve(t.Context(), a); !errors.Is(err, admission.ErrUnavailable) || KindOf(err) != KindWrongType {
				t.Errorf("%s, freed %d: reserve %+v, %v", keys[i], freed, r, err)
			}
			v := admission.Verdict{
				Ref: spec.Ref, ReservationID: "r_2", UserID: a.UserID, RequestID: a.RequestID, BodyHash: "h", Quantity: 1, CreatedAt: time.Now(),
				Outcome: admission.VerdictCreated, OrderStatus: admission.OrderCreated, OrderID: "7", ClosesAt: spec.ClosesAt,
			}
			if err := s.Apply(t.Context(), []admission.Verdict{v}); !errors.Is(err, admission.ErrUnavailable) || KindOf(err) != KindWrongType {
				t.Errorf("%s: effect %v", keys[i], err)
			}
			if after := content(t, c, keys); !maps.Equal(before, after) {
				t.Errorf("%s: keys changed from %v to %v", keys[i], before, after)
			}
			if err := c.Del(t.Context(), keys...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// content tells the type of every key, and of the stock what remains.
func content(t *testing.T, c goredis.UniversalClient, keys []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, k := range keys {
		kind, err := c.Type(t.Context(), k).Result()
		if err != nil {
			t.Fatal(err)
		}
		m[k] = kind
	}
	if m[keys[0]] == "hash" {
		m["remaining"] = c.HGet(t.Context(), keys[0], "remaining").Val()
	}
	return m
}
