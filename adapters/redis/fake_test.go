package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fakeServer speaks RESP on loopback and answers by a function: for what a real server
// answers only in bad hours.
type fakeServer struct {
	listener net.Listener
	answer   func(cmd []string) string // raw RESP; "" closes the connection

	mu   sync.Mutex
	seen map[string]int // guarded by mu; command -> times received
	wait sync.WaitGroup
}

func startFake(t *testing.T, answer func(cmd []string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{listener: l, answer: answer, seen: map[string]int{}}
	f.wait.Go(f.accept)
	t.Cleanup(func() { _ = l.Close(); f.wait.Wait() })
	return f
}

func (f *fakeServer) addr() string { return f.listener.Addr().String() }

func (f *fakeServer) times(cmd string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[cmd]
}

func (f *fakeServer) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wait.Go(func() { f.serve(c) })
	}
}

func (f *fakeServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		cmd, err := readCommand(r)
		if err != nil {
			return
		}
		name := strings.ToLower(cmd[0])
		f.mu.Lock()
		f.seen[name]++
		f.mu.Unlock()
		reply := ""
		switch name {
		case "ping":
			reply = "+PONG\r\n"
		case "cluster":
			reply = f.slots()
		case "hello":
			reply = "-ERR unknown command\r\n" // as an old server; the driver goes on without
		default:
			reply = f.answer(cmd)
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

// slots says that this server has every slot.
func (f *fakeServer) slots() string {
	host, port, _ := net.SplitHostPort(f.addr())
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
}

func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	cmd := make([]string, n)
	for i := range cmd {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		cmd[i] = string(b[:size])
	}
	return cmd, nil
}

func readLength(r *bufio.Reader, mark byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != mark {
		return 0, fmt.Errorf("got %q", line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
