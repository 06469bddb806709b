package rocketmqadmin_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/servers"
	"github.com/sluice-io/sluice/adapters/servers/rocketmqadmin"
)

func TestTopicAndGroup(t *testing.T) {
	servers.Need(t, servers.RocketMQ())
	if err := rocketmqadmin.NamesrvReady(servers.RocketMQ()); err != nil {
		t.Fatal(err)
	}
	if err := rocketmqadmin.Ready(servers.RocketMQ()); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("rocketmqadmin_test_%d", time.Now().UnixNano())
	for range 2 { // creating what exists is not an error
		if err := rocketmqadmin.CreateTopic(servers.RocketMQ(), name, 2); err != nil {
			t.Fatal(err)
		}
		if err := rocketmqadmin.CreateGroup(servers.RocketMQ(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := rocketmqadmin.CreateTopic(servers.RocketMQ(), "no spaces allowed", 2); err == nil {
		t.Fatal("the broker's refusal was lost")
	}
}

func TestOtherServersAreNotTakenForRocketMQ(t *testing.T) {
	for name, answer := range map[string]string{
		"closes at once":   "",
		"speaks HTTP":      "HTTP/1.1 400 Bad Request\r\n\r\n",
		"header too long":  "\x00\x00\x00\x08\x00\x00\x00\xff....",
		"header is no map": "\x00\x00\x00\x08\x00\x00\x00\x04nope",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
			if err := rocketmqadmin.Ready(l.Addr().String()); err == nil {
				t.Fatal("taken for a ready RocketMQ")
			}
		})
	}
}
