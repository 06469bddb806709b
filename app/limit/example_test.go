package limit_test

import (
	"fmt"
	"time"

	"github.com/sluice-io/sluice/app/limit"
)

// A bucket of three that gets one back every half second. Time is an argument: a service
// passes clock.Now(), read once per request.
func ExampleBucket() {
	r, err := limit.NewRate(2, 3)
	if err != nil {
		panic(err)
	}
	b := limit.NewBucket(r)
	now := limit.Instant(0)
	for range 4 {
		fmt.Printf("%+v\n", b.Allow(now, 1))
	}
	now = now.Add(500 * time.Millisecond)
	fmt.Printf("%+v\n", b.Allow(now, 1))
	// Output:
	// {OK:true RetryAfter:0s Remaining:2}
	// {OK:true RetryAfter:0s Remaining:1}
	// {OK:true RetryAfter:0s Remaining:0}
	// {OK:false RetryAfter:500ms Remaining:0}
	// {OK:true RetryAfter:0s Remaining:0}
}

// One table serves all users of all activities; the rule comes with the call. A charge is
// given back when a later stage refuses.
func ExampleKeyed() {
	users, err := limit.NewKeyed(limit.KeyedConfig{})
	if err != nil {
		panic(err)
	}
	rule, _ := limit.NewRate(0.5, 3)
	h := limit.NewHasher()
	alice := limit.Key{ID: h.Join("10001", "90001", "alice"), Prefix: h.String("203.0.113.0/24")}

	d := users.Allow(0, alice, 1, rule)
	fmt.Println(d.OK, d.Remaining)
	users.Refund(0, 0, alice, 1, rule)
	fmt.Println(users.Inspect(0, alice, rule).Remaining)
	// Output:
	// true 2
	// 3
}
