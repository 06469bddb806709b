// Package embedded is a Redis server inside this process, for a complete sale on one
// machine: limiter store, stock store and queue of `sluice serve` without settings.
//
// What it promises: it listens on loopback only, speaks enough of Redis for every script
// of package lua, and its clock is the real one, so that keys expire and TIME moves. It
// is slower than Redis in Lua by about ten times.
//
// It keeps nothing: when the process ends, stock, reservations, nonces and messages are
// gone. The orders of SQL outlive it.
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Server is a running server.
type Server struct {
	redis   *miniredis.Miniredis
	expired time.Time // until when keys have expired; only Run touches it
}

// tick is how often expiry is brought up to the real clock: a key's life is wrong by at
// most so much, either way. Expiring on every access instead would walk all expiring keys
// at every command.
const tick = 50 * time.Millisecond

// Start listens on a free port of 127.0.0.1. TIME moves at once; keys expire while Run
// runs. The caller ends it by ending Run, or by Close.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	m.Server().SetPreHook(introspection(runID()))
	return &Server{redis: m, expired: time.Now()}, nil
}

// Run expires keys until ctx ends, then closes the server and returns.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			s.expire(now)
		}
	}
}

// expire lets the time since the last call pass for every key that expires.
func (s *Server) expire(now time.Time) {
	if d := now.Sub(s.expired); d > 0 {
		s.redis.FastForward(d)
		s.expired = now
	}
}

// Close ends the server and forgets everything in it.
func (s *Server) Close() { s.redis.Close() }

// URL is the server's address as Open of adapters/redis takes it.
func (s *Server) URL() string { return "redis://" + s.redis.Addr() }

// Addr is host:port.
func (s *Server) Addr() string { return s.redis.Addr() }

// introspection answers what the server is, which miniredis does not: its run_id, by
// which scripts notice another primary, and its eviction policy, which is none. It
// answers the same inside scripts.
func introspection(runID string) server.Hook {
	sections := map[string]string{
		"server":      "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\nrun_id:" + runID + "\r\n",
		"memory":      "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
		"replication": "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
	}
	return func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "INFO" || len(args) != 1 {
			return false
		}
		text, ok := sections[strings.ToLower(args[0])]
		if ok {
			c.WriteBulk(text)
		}
		return ok
	}
}

// runID is 40 hex digits, like those of Redis: another start is another server.
func runID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
