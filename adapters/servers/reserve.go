package servers

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// Reserve takes a free port of loopback until the test ends, and returns its address.
// Nobody listens there: who connects is refused, and the kernel gives the port to no one
// who asks for just any, neither to listen nor to connect from. A server that is told this
// very port may listen on it, once or again after a restart.
//
// A port that is picked and let go can be somebody else's by the time it is used; on a busy
// machine, with other packages' tests beside, it is.
func Reserve(t testing.TB) netip.AddrPort {
	t.Helper()
	at, release, err := reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return at
}

// ReserveWith is Reserve for a server that takes a second port, above by so many.
func ReserveWith(t testing.TB, above uint16) netip.AddrPort {
	t.Helper()
	at, release, err := reserveWith(above)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return at
}

func reserveWith(above uint16) (at netip.AddrPort, release func(), err error) {
	for range 100 {
		at, first, err := reserve(0)
		if err != nil {
			return at, nil, err
		}
		if int(at.Port())+int(above) < 1<<16 {
			if _, second, err := reserve(at.Port() + above); err == nil {
				return at, func() { first(); second() }, nil
			}
		}
		defer first() // not before the search is over, or it comes again
	}
	return at, nil, fmt.Errorf("no two free ports %d apart", above)
}

// reserve binds a socket that never listens. Of two sockets that both say SO_REUSEADDR, as
// servers do, Linux lets the second one bind as long as the first one does not listen.
func reserve(port uint16) (at netip.AddrPort, release func(), err error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return at, nil, fmt.Errorf("reserve a port: %w", err)
	}
	release = func() { _ = syscall.Close(fd) }
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(port), Addr: loopback.As4()})
	}
	var name syscall.Sockaddr
	if err == nil {
		name, err = syscall.Getsockname(fd)
	}
	if err != nil {
		release()
		return at, nil, fmt.Errorf("reserve port %d: %w", port, err)
	}
	return netip.AddrPortFrom(loopback, uint16(name.(*syscall.SockaddrInet4).Port)), release, nil //nolint:gosec // a port
}
