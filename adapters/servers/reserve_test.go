package servers_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/sluice-io/sluice/adapters/servers"
)

// TestReserve: nobody is there, nobody else gets it, and who is told it may come and go.
func TestReserve(t *testing.T) {
	at := servers.ReserveWith(t, 1000)
	for range 2 {
		if c, err := net.Dial("tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%v, %v: want a refusal", c, err)
		}
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			t.Fatalf("a server that was told the port: %v", err)
		}
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Close(), l.Close()
	}
}

// TestReservedIsGivenToNobody: of many who listen or call from just any port, none has one of
// these.
func TestReservedIsGivenToNobody(t *testing.T) {
	reserved := map[string]bool{}
	for range 300 {
		at := servers.Reserve(t).String()
		if reserved[at] {
			t.Fatalf("%s twice", at)
		}
		reserved[at] = true
	}
	for range 3000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if reserved[l.Addr().String()] {
			t.Errorf("%s was given to somebody else", l.Addr())
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if reserved[c.LocalAddr().String()] {
			t.Errorf("%s calls from a reserved port", c.LocalAddr())
		}
		_, _ = c.Close(), l.Close()
	}
}
