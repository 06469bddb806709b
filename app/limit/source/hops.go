package source

import (
	"net/netip"
	"strconv"
	"strings"
)

// hops walks the members of X-Forwarded-For lines from the last to the first. Several
// lines are one list (RFC 9110, 5.3); empty members are skipped.
type hops struct {
	lines []string // lines not begun yet
	line  string   // what is left of the current one
}

// previous returns the next member to the left, trimmed, and false when none is left.
func (h *hops) previous() (string, bool) {
	for {
		for h.line == "" {
			if len(h.lines) == 0 {
				return "", false
			}
			h.line, h.lines = h.lines[len(h.lines)-1], h.lines[:len(h.lines)-1]
		}
		comma := strings.LastIndexByte(h.line, ',')
		member := strings.Trim(h.line[comma+1:], " \t")
		h.line = h.line[:max(comma, 0)]
		if member != "" {
			return member, true
		}
	}
}

// parseHop reads an address as proxies and sockets write it:
//
//	192.0.2.1   192.0.2.1:443   2001:db8::1   [2001:db8::1]   [2001:db8::1%eth0]:443
//
// and returns it without port and zone, an IPv4-mapped one (::ffff:192.0.2.1) as IPv4.
func parseHop(s string) (netip.Addr, bool) {
	switch {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 || !validPort(s[end+1:]) {
			return netip.Addr{}, false
		}
		addr, ok := parseAddr(s[1:end])
		return addr, ok && strings.Contains(s[1:end], ":") // brackets are for IPv6
	case strings.Count(s, ":") == 1:
		host, _, _ := strings.Cut(s, ":")
		if !validPort(s[len(host):]) {
			return netip.Addr{}, false
		}
		return parseAddr(host)
	}
	return parseAddr(s)
}

// parseAddr drops the zone before parsing: it means nothing off its link, and netip would
// intern whatever a client sends.
func parseAddr(s string) (netip.Addr, bool) {
	host, zone, zoned := strings.Cut(s, "%")
	if zoned && (zone == "" || !strings.Contains(host, ":")) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	return addr.Unmap(), err == nil
}

// validPort accepts nothing, or a colon and a port.
func validPort(s string) bool {
	if s == "" {
		return true
	}
	_, err := strconv.ParseUint(s[1:], 10, 16)
	return s[0] == ':' && err == nil
}

// unNAT64 returns the IPv4 address that the well-known prefix 64:ff9b::/96 embeds (RFC
// 6052): behind one translator many IPv4 clients share a /64.
func unNAT64(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	if [12]byte(b[:12]) != [12]byte{0, 0x64, 0xff, 0x9b} {
		return addr
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

// unmapPrefix turns a prefix of IPv4-mapped addresses into the IPv4 prefix it means.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4In6() {
		return p
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96) // a shorter one becomes invalid
}
