// Package source finds out which address a request came from, and which prefixes limits
// are keyed by.
//
// The socket's peer is the only address nobody can invent. It is the source, unless it
// belongs to a proxy we trust; then X-Forwarded-For is read from the right, past further
// trusted hops, to the first address that is not trusted. What stands left of that was
// written by the client and is not looked at. No other header is ever read.
//
// What cannot be parsed never becomes the proxy's address: it is [Unparsable], one source
// for all such requests, to be limited strictly and counted.
package source

import (
	"fmt"
	"net/netip"

	"github.com/sluice-io/sluice/app/limit"
)

// Via says how a source was found; a label of bounded values for metrics and audit.
type Via uint8

const (
	Unparsable Via = iota // peer or a hop that had to be read is no address
	Direct                // the peer itself, not trusted; headers ignored
	Forwarded             // the first untrusted hop behind trusted proxies
	Internal              // every hop is trusted: a probe, or a proxy that names nobody
)

func (v Via) String() string {
	return [...]string{"unparsable", "direct", "forwarded", "internal"}[v]
}

// Source is where a request came from. The zero value is Unparsable.
type Source struct {
	Via    Via
	Addr   netip.Addr   // normalised: no zone, IPv4 where IPv6 only wraps it
	Prefix netip.Prefix // what per-source limits are keyed by: /32 or /64
	Coarse netip.Prefix // what the coarse limit and overflow are keyed by: /24 or /48
}

// Key hashes the prefixes for a keyed limiter. All unparsable sources share one key.
func (s Source) Key(h limit.Hasher) limit.Key {
	return limit.Key{ID: PrefixKey(h, s.Prefix), Prefix: PrefixKey(h, s.Coarse)}
}

// PrefixKey hashes a prefix as Key does: for limits that are set for one of them.
func PrefixKey(h limit.Hasher, p netip.Prefix) uint64 {
	a := p.Addr().As16()
	var name [len(a) + 2]byte // the family too: :: and 0.0.0.0 differ, and no address from both
	copy(name[:], a[:])
	name[len(a)], name[len(a)+1] = byte(p.Bits()), byte(p.Addr().BitLen())
	return h.Bytes(name[:])
}

// Config says whom to trust. The zero value trusts nobody.
type Config struct {
	Trusted []netip.Prefix // proxies whose X-Forwarded-For is believed
}

// Resolver finds sources. It is immutable; a changed policy is a new one.
type Resolver struct{ trusted []netip.Prefix }

// NewResolver validates a configuration. It rejects invalid prefixes, and a prefix of no
// bits, which would let every client name its own address.
func NewResolver(c Config) (*Resolver, error) {
	r := &Resolver{}
	for i, p := range c.Trusted {
		field := fmt.Sprintf("trusted[%d]", i)
		p = unmapPrefix(p)
		switch {
		case !p.IsValid():
			return nil, &limit.FieldError{Field: field, Problem: "is not a prefix"}
		case p.Bits() == 0:
			return nil, &limit.FieldError{Field: field, Problem: p.String() + " would trust everybody"}
		}
		r.trusted = append(r.trusted, p.Masked())
	}
	return r, nil
}

// maxHops bounds the walk. No chain of trusted proxies is that long; a header that is, is
// not a chain.
const maxHops = 16

// Resolve finds the source of a request from its socket's peer (the form of
// [net/http.Request.RemoteAddr]) and its X-Forwarded-For lines in order. It allocates
// nothing unless an address fails to parse.
func (r *Resolver) Resolve(peer string, forwarded []string) Source {
	addr, ok := parseHop(peer)
	if !ok {
		return Source{}
	}
	if !r.trusts(addr) {
		return found(Direct, addr)
	}
	hops := hops{lines: forwarded}
	for range maxHops {
		hop, more := hops.previous()
		if !more {
			return found(Internal, addr)
		}
		if addr, ok = parseHop(hop); !ok {
			return Source{}
		}
		if !r.trusts(addr) {
			return found(Forwarded, addr)
		}
	}
	return Source{}
}

// TrustsPeer reports whether a socket's peer is a trusted proxy. A peer that cannot be
// parsed is not.
func (r *Resolver) TrustsPeer(peer string) bool {
	addr, ok := parseHop(peer)
	return ok && r.trusts(addr)
}

// trusts looks at the address as it was on the wire. An address that NAT64 embeds is not
// trusted for what it embeds: 64:ff9b::10.0.0.1 is no member of 10.0.0.0/8.
func (r *Resolver) trusts(addr netip.Addr) bool {
	for _, p := range r.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func found(via Via, addr netip.Addr) Source {
	s := Source{Via: via, Addr: unNAT64(addr)}
	s.Prefix, s.Coarse = Prefixes(s.Addr)
	return s
}

// Prefixes are what a valid address is limited by: its own /32 or /64, and its /24 or /48.
func Prefixes(addr netip.Addr) (own, coarse netip.Prefix) {
	addr = unNAT64(addr.Unmap().WithZone(""))
	bits, coarseBits := 64, 48
	if addr.Is4() {
		bits, coarseBits = 32, 24
	}
	own, _ = addr.Prefix(bits) // widths within the address's own
	coarse, _ = addr.Prefix(coarseBits)
	return own, coarse
}
