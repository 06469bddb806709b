package source_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/limit"
	"github.com/sluice-io/sluice/app/limit/source"
)

// proxied trusts a private IPv4 net, one IPv6 net, and nobody else.
func proxied(t testing.TB) *source.Resolver {
	t.Helper()
	r, err := source.NewResolver(source.Config{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResolve(t *testing.T) {
	const proxy = "10.0.0.1:5000"
	for _, c := range []struct {
		name  string
		peer  string
		lines []string
		via   source.Via
		addr  string
	}{
		{"no proxy", "198.51.100.7:1234", nil, source.Direct, "198.51.100.7"},
		{"header of an untrusted peer", "198.51.100.7:1234", []string{"1.2.3.4"}, source.Direct, "198.51.100.7"},
		{"one hop", proxy, []string{"1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"trusted hops are skipped", proxy, []string{"1.2.3.4, 10.9.9.9, 10.0.0.2"}, source.Forwarded, "1.2.3.4"},
		{"what the client wrote is left of it", proxy, []string{"6.6.6.6, 1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"a trusted address the client wrote", proxy, []string{"10.1.1.1, 1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"lines are joined", proxy, []string{"6.6.6.6", "1.2.3.4", "10.0.0.2"}, source.Forwarded, "1.2.3.4"},
		{"empty members", proxy, []string{"1.2.3.4, ,, ", "", " ,"}, source.Forwarded, "1.2.3.4"},
		{"spaces and tabs", proxy, []string{"\t 1.2.3.4 \t"}, source.Forwarded, "1.2.3.4"},
		{"port", proxy, []string{"1.2.3.4:443"}, source.Forwarded, "1.2.3.4"},
		{"IPv6", proxy, []string{"2001:DB8::1"}, source.Forwarded, "2001:db8::1"},
		{"brackets", proxy, []string{"[2001:db8::1]"}, source.Forwarded, "2001:db8::1"},
		{"brackets and port", proxy, []string{"[2001:db8::1]:443"}, source.Forwarded, "2001:db8::1"},
		{"zone", proxy, []string{"fe80::1%eth0"}, source.Forwarded, "fe80::1"},
		{"zone, brackets and port", proxy, []string{"[fe80::1%25eth0]:443"}, source.Forwarded, "fe80::1"},
		{"mapped", proxy, []string{"::ffff:1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"mapped in hex", proxy, []string{"::ffff:102:304"}, source.Forwarded, "1.2.3.4"},
		{"mapped peer is trusted", "[::ffff:10.0.0.1]:5000", []string{"1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"IPv6 proxy", "[2001:db8:f::9]:5000", []string{"1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"NAT64", proxy, []string{"64:ff9b::102:304"}, source.Forwarded, "1.2.3.4"},
		{"NAT64 of a trusted address is not trusted", "[64:ff9b::a00:1]:5000", []string{"1.2.3.4"}, source.Direct, "10.0.0.1"},
		{"proxy that names nobody", proxy, nil, source.Internal, "10.0.0.1"},
		{"only empty members", proxy, []string{" , "}, source.Internal, "10.0.0.1"},
		{"trusted all the way", proxy, []string{"10.7.7.7, 10.0.0.2"}, source.Internal, "10.7.7.7"},

		{"peer is no address", "@", nil, source.Unparsable, ""},
		{"no peer", "", []string{"1.2.3.4"}, source.Unparsable, ""},
		{"unknown", proxy, []string{"unknown"}, source.Unparsable, ""},
		{"garbage right of a good one", proxy, []string{"1.2.3.4, x"}, source.Unparsable, ""},
		{"garbage left of a good one is not read", proxy, []string{"x, 1.2.3.4"}, source.Forwarded, "1.2.3.4"},
		{"garbage left of trusted hops", proxy, []string{"_hidden, 10.0.0.2"}, source.Unparsable, ""},
		{"no port after the colon", proxy, []string{"1.2.3.4:"}, source.Unparsable, ""},
		{"port out of range", proxy, []string{"1.2.3.4:65536"}, source.Unparsable, ""},
		{"signed port", proxy, []string{"1.2.3.4:+80"}, source.Unparsable, ""},
		{"open bracket", proxy, []string{"[2001:db8::1"}, source.Unparsable, ""},
		{"text after the bracket", proxy, []string{"[2001:db8::1]x"}, source.Unparsable, ""},
		{"IPv4 in brackets", proxy, []string{"[1.2.3.4]"}, source.Unparsable, ""},
		{"empty zone", proxy, []string{"fe80::1%"}, source.Unparsable, ""},
		{"IPv4 with a zone", proxy, []string{"1.2.3.4%eth0"}, source.Unparsable, ""},
		{"leading zeros", proxy, []string{"1.2.3.004"}, source.Unparsable, ""},
		{"number", proxy, []string{"16909060"}, source.Unparsable, ""},
		{"quoted", proxy, []string{`"1.2.3.4"`}, source.Unparsable, ""},
		{"endless chain", proxy, []string{strings.Repeat("10.0.0.2,", 100)}, source.Unparsable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := proxied(t).Resolve(c.peer, c.lines)
			if got.Via != c.via || c.addr != "" && got.Addr != netip.MustParseAddr(c.addr) {
				t.Errorf("%v %v, want %v %v", got.Via, got.Addr, c.via, c.addr)
			}
			if c.via == source.Unparsable && got != (source.Source{}) {
				t.Errorf("an unparsable source says %+v", got)
			}
		})
	}
}

// TestL07OneClientOneBucket: case L07, spellings and rotations that must share a bucket,
// and neighbours that must not.
func TestL07OneClientOneBucket(t *testing.T) {
	h, r := limit.NewHasher(), proxied(t)
	keyOf := func(hop string) limit.Key { return r.Resolve("10.0.0.1:1", []string{hop}).Key(h) }

	t.Run("a: a thousand addresses of one /64", func(t *testing.T) {
		want := keyOf("2001:db8:1:2::1")
		for i := range 1000 {
			if keyOf(fmt.Sprintf("2001:db8:1:2:%x:%x::", i, i*7)) != want {
				t.Fatal("another bucket")
			}
		}
		if keyOf("2001:db8:1:3::1").ID == want.ID {
			t.Error("the next /64 shares it")
		}
		if keyOf("2001:db8:1:3::1").Prefix != want.Prefix {
			t.Error("one /48 should have one coarse key")
		}
	})
	t.Run("b: spellings", func(t *testing.T) {
		for _, same := range [][]string{
			{"1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "1.2.3.4:80", "[::ffff:1.2.3.4]:80"},
			{"2001:DB8::1", "2001:db8:0:0::1", "[2001:db8::1]:9"},
		} {
			for _, hop := range same {
				if keyOf(hop) != keyOf(same[0]) {
					t.Errorf("%s and %s differ", hop, same[0])
				}
			}
		}
	})
	t.Run("c: mapped IPv4 are not one /64", func(t *testing.T) {
		if keyOf("::ffff:1.2.3.4").ID == keyOf("::ffff:1.2.3.5").ID {
			t.Error("all IPv4 in one bucket")
		}
	})
	t.Run("d: many people behind one NAT", func(t *testing.T) {
		// The source limit is coarse, the user limit strict: 300 students pass once each,
		// one who hammers does not.
		sources, users := limit.KeyedConfig{}, limit.KeyedConfig{}
		bySource, byUser := mustKeyed(t, sources), mustKeyed(t, users)
		sourceRate, userRate := mustRate(t, 1000, 2000), mustRate(t, 0.5, 3)
		passed := 0
		for i := range 300 {
			if bySource.Allow(0, keyOf("192.0.2.1"), 1, sourceRate).OK &&
				byUser.Allow(0, limit.Key{ID: h.Join("a", "s", fmt.Sprint("student", i))}, 1, userRate).OK {
				passed++
			}
		}
		if passed != 300 {
			t.Errorf("%d of 300 passed", passed)
		}
		for range 10 {
			if byUser.Allow(0, limit.Key{ID: h.Join("a", "s", "student1")}, 1, userRate).OK {
				passed++
			}
		}
		if passed != 302 {
			t.Errorf("the greedy one got %d more, want 2", passed-300)
		}
	})
	t.Run("e: NAT64 by the embedded IPv4", func(t *testing.T) {
		if keyOf("64:ff9b::1.2.3.4") != keyOf("1.2.3.4") || keyOf("64:ff9b::1.2.3.5") == keyOf("1.2.3.4") {
			t.Error("not keyed by the embedded address")
		}
	})
	t.Run("unparsable: one bucket, nobody else's", func(t *testing.T) {
		if keyOf("unknown") != keyOf("x") || keyOf("x").ID == 0 || keyOf("x").ID == keyOf("::").ID || keyOf("x").ID == keyOf("0.0.0.0").ID {
			t.Error("unparsable sources do not share one bucket of their own")
		}
	})
}

func mustKeyed(t *testing.T, c limit.KeyedConfig) *limit.Keyed {
	t.Helper()
	k, err := limit.NewKeyed(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustRate(t *testing.T, perSecond float64, burst int64) limit.Rate {
	t.Helper()
	r, err := limit.NewRate(perSecond, burst)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTrustsPeer(t *testing.T) {
	for peer, want := range map[string]bool{
		"10.0.0.1:5000": true, "[::ffff:10.0.0.1]:5000": true, "[2001:db8:f::9]:1": true,
		"198.51.100.7:1234": false, "[64:ff9b::a00:1]:5000": false, "@": false, "": false,
	} {
		if got := proxied(t).TrustsPeer(peer); got != want {
			t.Errorf("%q: %v", peer, got)
		}
	}
}

// TestPrefixes: an address is limited by the same prefixes however it is spelt, and as the
// requests from it are.
func TestPrefixes(t *testing.T) {
	for addr, want := range map[string][2]string{
		"192.0.2.77":          {"192.0.2.77/32", "192.0.2.0/24"},
		"::ffff:192.0.2.77":   {"192.0.2.77/32", "192.0.2.0/24"},
		"64:ff9b::192.0.2.77": {"192.0.2.77/32", "192.0.2.0/24"},
		"2001:db8:1:2ff::1":   {"2001:db8:1:2ff::/64", "2001:db8:1::/48"},
		"fe80::1%eth0":        {"fe80::/64", "fe80::/48"},
	} {
		a := netip.MustParseAddr(addr)
		own, coarse := source.Prefixes(a)
		if own.String() != want[0] || coarse.String() != want[1] {
			t.Errorf("%s: %v %v, want %v", addr, own, coarse, want)
		}
		r, err := source.NewResolver(source.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Resolve("["+addr+"]:1", nil); strings.Contains(addr, ":") && (s.Prefix != own || s.Coarse != coarse) {
			t.Errorf("a request from %s: %v %v", addr, s.Prefix, s.Coarse)
		}
	}
}

func TestResolverRejects(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, c := range []struct {
		config source.Config
		field  string
	}{
		{source.Config{Trusted: []netip.Prefix{prefix("10.0.0.0/8"), {}}}, "trusted[1]"},
		{source.Config{Trusted: []netip.Prefix{prefix("0.0.0.0/0")}}, "trusted[0]"},
		{source.Config{Trusted: []netip.Prefix{prefix("::/0")}}, "trusted[0]"},
		{source.Config{Trusted: []netip.Prefix{prefix("::ffff:0.0.0.0/96")}}, "trusted[0]"},
		{source.Config{Trusted: []netip.Prefix{prefix("::ffff:10.0.0.0/80")}}, "trusted[0]"},
	} {
		_, err := source.NewResolver(c.config)
		if err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v, want an error of %s", c.config, err, c.field)
		}
	}
	r, err := source.NewResolver(source.Config{Trusted: []netip.Prefix{prefix("::ffff:10.0.0.0/104")}})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Resolve("10.1.2.3:1", []string{"1.2.3.4"}); s.Via != source.Forwarded {
		t.Errorf("a mapped prefix does not trust what it means: %v", s.Via)
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	r, h := proxied(t), limit.NewHasher()
	one, several := []string{"1.2.3.4"}, []string{"6.6.6.6, [2001:db8::1%eth0]:443", "10.0.0.2"}
	for name, resolve := range map[string]func(){
		"untrusted peer": func() { r.Resolve("198.51.100.7:1234", one) },
		"single hop":     func() { r.Resolve("10.0.0.1:5000", one) },
		"several hops":   func() { r.Resolve("10.0.0.1:5000", several) },
		"key":            func() { r.Resolve("198.51.100.7:1234", nil).Key(h) },
	} {
		if n := testing.AllocsPerRun(100, resolve); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// FuzzResolve: whatever is sent, a request has exactly one source, an untrusted peer is
// believed before any header, and the source resolves to itself.
func FuzzResolve(f *testing.F) {
	f.Add("10.0.0.1:5000", "1.2.3.4, 10.0.0.2", "[2001:db8::1%eth0]:443")
	f.Add("198.51.100.7:1", "::ffff:1.2.3.4", ",, ,")
	f.Add("[64:ff9b::a00:1]:5000", "64:ff9b::1.2.3.4", "%")
	f.Add("10.0.0.1", "unknown", "[::1]:99999")
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		r, h := proxied(t), limit.NewHasher()
		s := r.Resolve(peer, []string{first, second})
		if s.Key(h).ID == 0 || s.Key(h).Prefix == 0 {
			t.Fatal("a source without a key")
		}
		if alone := r.Resolve(peer, nil); alone.Via == source.Direct && s != alone {
			t.Fatalf("headers moved an untrusted peer from %v to %v", alone, s)
		}
		if s.Via == source.Unparsable {
			if s != (source.Source{}) {
				t.Fatalf("unparsable, and yet %+v", s)
			}
			return
		}
		if s.Addr.Zone() != "" || s.Addr.Is4In6() || !s.Prefix.Contains(s.Addr) || !s.Coarse.Contains(s.Addr) {
			t.Fatalf("not normal: %+v", s)
		}
		if again := r.Resolve(s.Addr.String(), nil); again.Addr != s.Addr || again.Prefix != s.Prefix {
			t.Fatalf("%v resolves to %v", s, again)
		}
	})
}
