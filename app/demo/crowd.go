package demo

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sluice-io/sluice/app/client"
	"github.com/sluice-io/sluice/bench/load"
)

// Kind is what somebody came for.
type Kind string

// The kinds: honest people, and the hostile ones.
const (
	Honest    Kind = "honest"
	Forger    Kind = "forged_ticket"
	Thief     Kind = "stolen_ticket"
	Replayer  Kind = "replay"
	Twins     Kind = "twins"
	Tabs      Kind = "tabs_and_devices"
	Tamperer  Kind = "tampered_body"
	WrongPath Kind = "wrong_path"
	Hammer    Kind = "hammer"
)

// hostileKinds in the order in which they are dealt out.
var hostileKinds = [...]Kind{Forger, Thief, Replayer, Twins, Tabs, Tamperer, WrongPath, Hammer}

// Shares of the honest people.
const (
	abandonShare = 0.05 // walk away before they submit
	lateShare    = 0.10 // come after the opening
)

// person is one simulated person.
type person struct {
	client.Person
	kind  Kind
	leave client.Milestone // where they walk away; "" is nowhere
	rand  *rand.Rand       // of this person's goroutine
}

// crowd makes people. Person i is always the same for the same seed.
type crowd struct {
	seed    uint64
	users   int
	hostile float64 // percent
	first   int64   // user id of person 0
}

// firstUser is above 2^53, so that an id which passes through a floating-point number becomes somebody else's.
const firstUser = 7_300_000_000_000_000_000

// maxUsers keeps user ids and addresses (10.0.0.0/8) distinct.
const maxUsers = 1 << 20

func newCrowd(seed uint64, users int, hostile float64) crowd {
	return crowd{seed, users, hostile, firstUser + int64(seed%100_000_000_000)*maxUsers}
}

func (c crowd) person(i int) *person {
	r := rand.New(rand.NewPCG(c.seed, uint64(i)))
	p := &person{kind: Honest, rand: r, Person: client.Person{
		UserID:  strconv.FormatInt(c.first+int64(i), 10),
		Device:  fmt.Sprintf("demo-%016x", r.Uint64()),
		Address: address(i),
	}}
	// Hostile people are spread evenly: everybody whose share of the crowd completes one more.
	if before, now := int(float64(i)*c.hostile/100), int(float64(i+1)*c.hostile/100); now > before {
		p.kind = hostileKinds[before%len(hostileKinds)]
	} else if r.Float64() < abandonShare {
		p.leave = [...]client.Milestone{client.Joined, client.Released, client.Ticketed}[r.IntN(3)]
	}
	return p
}

// address gives person i an IPv4 address of their own, in 10.0.0.0/8.
func address(i int) string {
	n := i + 1
	return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
}

// arrivals spreads the early ones over window and the late ones over the time after the opening, at the pace of
// the early ones. window and opening count from the beginning.
func (c crowd) arrivals(window, opening time.Duration) load.Schedule {
	early := c.users - int(float64(c.users)*lateShare)
	rate := float64(max(1, early)) / window.Seconds()
	return load.Then(early, load.Constant(rate), opening+200*time.Millisecond, load.Constant(rate))
}
