// Package caller sends prepared HTTP requests from a process of its own, so that what the
// caller spends is no part of what the server under measurement spends.
//
// The measuring program starts itself anew as the caller (Start, and Serve in the child) and
// tells it over a pipe which requests to send where. The child ends with its standard input.
// An answer of another status than was announced ends the run: it would measure something
// else.
package caller

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// Argument is the first argument of a program that is to be the caller.
const Argument = "caller"

// connections are kept alive, each with one request at a time.
const connections = 8

// Plan is what the child needs to know in advance.
type Plan struct {
	Requests [][]byte // whole, as they go over the wire
	Targets  []Target
}

// Target is a server, and the status that each of its answers must have.
type Target struct {
	Address string // host:port
	Status  int
}

// order is one run.
type order struct {
	Target, From, N int // requests From to From+N-1, counted around
}

// Caller is the child, seen from the parent. It is not safe for concurrent use.
type Caller struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	send *gob.Encoder
	done *gob.Decoder
}

// Start starts this program as the caller.
func Start(p Plan) (*Caller, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	c := &Caller{cmd: exec.Command(self, Argument)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("caller: %w", err)
	}
	c.send, c.done = gob.NewEncoder(c.in), gob.NewDecoder(out)
	if err := c.send.Encode(p); err != nil {
		c.Close()
		return nil, fmt.Errorf("caller: %w", err)
	}
	return c, nil
}

// Send sends n requests, the first of them number from, and waits for all answers.
func (c *Caller) Send(target, from, n int) error {
	if err := c.send.Encode(order{target, from, n}); err != nil {
		return fmt.Errorf("caller: %w", err)
	}
	var fault string
	if err := c.done.Decode(&fault); err != nil {
		return fmt.Errorf("caller: %w", err)
	}
	if fault != "" {
		return errors.New("caller: " + fault)
	}
	return nil
}

// Close ends the child.
func (c *Caller) Close() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// Serve is the child: it obeys until in ends.
func Serve(in io.Reader, out io.Writer) error {
	orders, done := gob.NewDecoder(in), gob.NewEncoder(out)
	var p Plan
	if err := orders.Decode(&p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	lines := make([][]*line, len(p.Targets))
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("order: %w", err)
		}
		fault := ""
		if err := p.run(o, &lines[o.Target]); err != nil {
			fault = err.Error()
		}
		if err := done.Encode(fault); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
}

// run divides the requests among the target's lines, which it dials when they are first used.
func (p *Plan) run(o order, lines *[]*line) error {
	target := p.Targets[o.Target]
	for len(*lines) < connections {
		c, err := net.Dial("tcp", target.Address)
		if err != nil {
			return err
		}
		*lines = append(*lines, &line{conn: c, answers: bufio.NewReader(c), want: "HTTP/1.1 " + strconv.Itoa(target.Status) + " "})
	}
	faults := make([]error, connections)
	var senders sync.WaitGroup
	for i, l := range *lines {
		senders.Go(func() {
			for k := i; k < o.N && faults[i] == nil; k += connections {
				faults[i] = l.exchange(p.Requests[(o.From+k)%len(p.Requests)])
			}
		})
	}
	senders.Wait()
	return errors.Join(faults...)
}

// line is one connection.
type line struct {
	conn    net.Conn
	answers *bufio.Reader
	want    string // how every answer begins
}

// exchange sends a request and reads its answer to the end.
func (l *line) exchange(request []byte) error {
	if _, err := l.conn.Write(request); err != nil {
		return err
	}
	status, err := l.answers.ReadString('\n')
	if err != nil {
		return err
	}
	length := 0
	for {
		header, err := l.answers.ReadString('\n')
		if err != nil {
			return err
		}
		if header == "\r\n" {
			break
		}
		if name, value, _ := strings.Cut(header, ":"); strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(l.answers, body); err != nil {
		return err
	}
	if !strings.HasPrefix(status, l.want) {
		return fmt.Errorf("want %s, got %s%s", l.want, status, body)
	}
	return nil
}
