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
	Prefix netip.Prefix // what per-source limits are keyed by: /32 and /64 by default
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

// Config says whom to trust and how wide a source is. The zero value trusts nobody.
type Config struct {
	Trusted []netip.Prefix // proxies whose X-Forwarded-For is believed
	V4Bits  int            // width of an IPv4 source, 24..32; default 32
	V6Bits  int            // width of an IPv6 source, 48..128; default 64
}

// Resolver finds sources. It is immutable; a changed policy is a new one.
type Resolver struct {
	trusted        []netip.Prefix
	v4Bits, v6Bits int
}

// NewResolver validates a configuration. It rejects widths out of range, invalid prefixes,
// and a prefix of no bits, which would let every client name its own address.
func NewResolver(c Config) (*Resolver, error) {
	r := &Resolver{v4Bits: c.V4Bits, v6Bits: c.V6Bits}
	if r.v4Bits == 0 {
		r.v4Bits = 32
	}
	if r.v6Bits == 0 {
		r.v6Bits = 64
	}
	if r.v4Bits < coarseV4 || r.v4Bits > 32 {
		return nil, &limit.FieldError{Field: "v4_bits", Problem: fmt.Sprintf("%d is not in %d..32", r.v4Bits, coarseV4)}
	}
	if r.v6Bits < coarseV6 || r.v6Bits > 128 {
		return nil, &limit.FieldError{Field: "v6_bits", Problem: fmt.Sprintf("%d is not in %d..128", r.v6Bits, coarseV6)}
	}
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

const (
	coarseV4 = 24
	coarseV6 = 48
	// maxHops bounds the walk. No chain of trusted proxies is that long; a header that
	// is, is not a chain.
	maxHops = 16
)

// Resolve finds the source of a request from its socket's peer (the form of
// [net/http.Request.RemoteAddr]) and its X-Forwarded-For lines in order. It allocates
// nothing unless an address fails to parse.
func (r *Resolver) Resolve(peer string, forwarded []string) Source {
	addr, ok := parseHop(peer)
	if !ok {
		return Source{}
	}
	if !r.trusts(addr) {
		return r.found(Direct, addr)
	}
	hops := hops{lines: forwarded}
	for range maxHops {
		hop, more := hops.previous()
		if !more {
			return r.found(Internal, addr)
		}
		if addr, ok = parseHop(hop); !ok {
			return Source{}
		}
		if !r.trusts(addr) {
			return r.found(Forwarded, addr)
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

func (r *Resolver) found(via Via, addr netip.Addr) Source {
	addr = unNAT64(addr)
	width, coarse := r.v6Bits, coarseV6
	if addr.Is4() {
		width, coarse = r.v4Bits, coarseV4
	}
	s := Source{Via: via, Addr: addr}
	s.Prefix, _ = addr.Prefix(width) // the widths were validated
	s.Coarse, _ = addr.Prefix(coarse)
	return s
}
