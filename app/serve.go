package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/sluice-io/sluice/app/cli"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/httpapi"
)

const (
	maxConnections = 20_000          // of one listener; above it the kernel's queue waits
	drainFor       = 4 * time.Second // the notice included
	// exitWithin is when a process that was asked to stop is gone, whatever holds it: whoever
	// asked kills it after 5 s.
	exitWithin = 4900 * time.Millisecond
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the service; embedded when no production setting is given",
		Example: `  sluice serve                                  a complete sale on this machine
  sluice serve --config sluice.yaml --roles gateway
  sluice serve --listen.public 127.0.0.1:0      a free port; the ready line says which`,
		Args: cli.Args(),
	}
	load := settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		err, ended := untilCut(cmd.Context(), exitWithin, func() error { return serve(cmd.Context(), c, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
		if !ended {
			fmt.Fprintln(cmd.ErrOrStderr(), "something did not end in time; what it left is decided by recovery")
		}
		return err
	}
	return cmd
}

// untilCut runs f, and stops waiting for it once ctx has ended and within has passed: the
// process ends then, and f with it.
func untilCut(ctx context.Context, within time.Duration, f func() error) (err error, ended bool) { //nolint:revive // what f returned, then whether it did
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err, true
	case <-ctx.Done():
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-done:
		return err, true
	case <-late.C:
		return nil, false
	}
}

// serve runs the service until ctx ends, then drains. The ready line is all that it
// writes to out.
func serve(ctx context.Context, c *config.Config, out, errOut io.Writer) error {
	return serveWith(ctx, c, out, errOut, func(*service) {})
}

// serveWith is serve with a look at the service once it is wired.
func serveWith(ctx context.Context, c *config.Config, out, errOut io.Writer, wired func(*service)) error {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // validated
	log := slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: level}))
	if c.InstanceID == "" {
		c.InstanceID = "i-" + strings.ToLower(rand.Text()[:10])
	}
	dir, err := lockDataDir(c.DataDir)
	if err != nil {
		return err
	}
	defer dir.unlock()
	listeners, err := listen(c)
	if err != nil {
		return err
	}
	defer listeners.close()

	s, err := newService(ctx, c, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to stop before there was anything to stop
	case err != nil:
		return notStarted(err)
	}
	defer s.close()
	if s.stores.server != nil {
		if err := s.forgetDemonstration(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	wired(s)
	if s.stores.server != nil {
		announceEmbedded(errOut, c, listeners)
	} else {
		announceProduction(errOut, c, listeners)
	}

	// The embedded store outlives every loop that uses it.
	store, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	var storing sync.WaitGroup
	defer storing.Wait()
	defer stopStore()
	if s.stores.server != nil {
		storing.Go(func() { _ = s.stores.server.Run(store) }) // it ends by its context alone
	}
	// Loops outlive the listeners: what the last requests left is still sent and marked.
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var running sync.WaitGroup
	failed := make(chan error, 1)
	s.start(loops, &running, failed)

	if s.stores.server != nil {
		if err := s.beginDemonstration(ctx); err != nil {
			stopLoops()
			running.Wait()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	servers := listeners.serve(s, failed)
	notice := time.Duration(0) // whoever was never ready has no balancer to warn
	err = awaitReady(ctx, s.unready, s.stores.server != nil, failed, log)
	if err == nil {
		err = announceReady(out, c, s, listeners)
	}
	if err == nil {
		notice = c.DrainNotice
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	s.draining.Store(true)
	log.Info("draining", "event", "draining")
	servers.drain(notice)
	stopLoops()
	running.Wait()
	_ = os.Remove(filepath.Join(c.DataDir, readyFile))
	log.Info("stopped", "event", "stopped")
	return notStarted(err)
}

// notStarted says of a dependency that ends the process that this is what it does.
func notStarted(err error) error {
	if err == nil || exit.Of(err) != exit.Away {
		return err
	}
	return fmt.Errorf("%w\nthe service does not run without it: exit code %d", err, exit.Away)
}

// listeners are the three sockets, opened before anything else: a port in use is
// reported at once.
type listeners struct{ public, internal, admin net.Listener }

func listen(c *config.Config) (*listeners, error) {
	l := &listeners{}
	for _, b := range []struct {
		setting, addr string
		into          *net.Listener
	}{
		{"listen.public", c.ListenPublic, &l.public},
		{"listen.internal", c.ListenInternal, &l.internal},
		{"listen.admin", c.ListenAdmin, &l.admin},
	} {
		got, err := net.Listen("tcp", b.addr)
		if err != nil {
			l.close()
			return nil, exit.Code(exit.Usage, fmt.Errorf("%s: %w; give another --%s, port 0 picks a free one", b.setting, err, b.setting))
		}
		*b.into = netutil.LimitListener(got, maxConnections)
	}
	return l, nil
}

func (l *listeners) close() {
	for _, x := range []net.Listener{l.public, l.internal, l.admin} {
		if x != nil {
			_ = x.Close()
		}
	}
}

// httpServers are those of the three listeners, in their order.
type httpServers struct {
	all     []*http.Server
	serving sync.WaitGroup
}

// internalServer is the internal listener's place among them.
const internalServer = 1

// serve starts the HTTP servers; drain ends them. An instance without the gateway role
// answers nothing on its public listener but that it is not here.
func (l *listeners) serve(s *service, failed chan<- error) *httpServers {
	out := &httpServers{}
	for _, p := range []struct {
		on      net.Listener
		handler http.Handler
	}{{l.public, s.public}, {l.internal, s.internal}, {l.admin, s.admin}} {
		server := httpapi.NewServer(s.partsWhenDraining(p.handler), s.log)
		out.all = append(out.all, server)
		out.serving.Go(func() {
			if err := server.Serve(p.on); !errors.Is(err, http.ErrServerClosed) {
				report(failed, fmt.Errorf("listener %s: %w", p.on.Addr(), err))
			}
		})
	}
	return out
}

// partsWhenDraining tells clients that keep a connection to leave with the answer in hand:
// a request that meets the end of a connection has no known result.
func (s *service) partsWhenDraining(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// drain takes requests until notice has passed, so that balancers see that readiness says
// "draining" before a connection is refused; then it lets the requests under way end,
// together, and cuts what takes longer than drainFor. The internal listener goes last:
// until then readiness answers whoever asks. When drain returns nobody serves any more.
func (s *httpServers) drain(notice time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	<-time.After(notice)
	end := func(server *http.Server) {
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}
	var ending sync.WaitGroup
	for i, server := range s.all {
		if i != internalServer {
			ending.Go(func() { end(server) })
		}
	}
	ending.Wait()
	end(s.all[internalServer])
	s.serving.Wait()
}

func report(failed chan<- error, err error) {
	select {
	case failed <- err:
	default: // the first one ends the process
	}
}

// readyFile is where commands of this machine find a running instance.
const readyFile = "ready.json"

// readyLine says that the service takes requests, and where.
type readyLine struct {
	Event    string   `json:"event"`
	Public   string   `json:"public"`
	Internal string   `json:"internal"`
	Admin    string   `json:"admin"`
	Embedded []string `json:"embedded"`
	Version  string   `json:"version"`
	Instance string   `json:"instance_id"`
	PID      int      `json:"pid"`
}

func announceReady(out io.Writer, c *config.Config, s *service, l *listeners) error {
	line := readyLine{
		Event: "ready", Public: l.public.Addr().String(), Internal: l.internal.Addr().String(), Admin: l.admin.Addr().String(),
		Embedded: []string{}, Version: version(), Instance: c.InstanceID, PID: os.Getpid(),
	}
	if s.stores.server != nil {
		line.Embedded = []string{"limiter", "stock", "queue", "orders", "rules"}
	}
	body, err := json.Marshal(line)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	tmp := filepath.Join(c.DataDir, readyFile+".tmp")
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return unusable(c.DataDir, err)
	}
	if err := os.Rename(tmp, filepath.Join(c.DataDir, readyFile)); err != nil {
		return unusable(c.DataDir, err)
	}
	_, err = out.Write(body)
	return err
}

// spell writes 10m, where String writes 10m0s.
func spell(d time.Duration) string {
	s := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, none) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func announceEmbedded(w io.Writer, c *config.Config, l *listeners) {
	where := "" // for the commands that look for a running instance
	if c.DataDir != ".sluice" {
		where = " --data.dir " + c.DataDir
	}
	fmt.Fprintf(w, `Sluice, embedded: a complete sale on this machine.

  page      http://%s/a/%s
  metrics   http://%s/metrics
  admin     http://%s/admin/v1/   (operator token: %s)
  rules     %s

  In this process and gone with it: limiter store, stock store, order messages.
  Kept in %s: orders (SQLite), keys, rules. The demonstration activity %s
  begins anew at each start: %d units, opening in %s, closing %s later. To see the
  page's countdown and draw: SLUICE_DEMO_OPENS_IN=1m, or --demo.opens_in 1m
  (--demo.duration for more time). Ctrl-C stops.

  A whole sale by simulated people, from another terminal:  go run ./app demo%s

`, l.public.Addr(), demoActivity, l.internal.Addr(), l.admin.Addr(), filepath.Join(c.DataDir, adminTokenFile),
		rulesPath(c), c.DataDir, demoActivity, c.DemoStock, spell(c.DemoOpensIn), spell(c.DemoDuration), where)
}

// announceProduction says what a production service is connected to, secrets masked, and what
// made it one: a variable that a shell still holds looks like nothing at all.
func announceProduction(w io.Writer, c *config.Config, l *listeners) {
	shown := c.Shown()
	rules := "file " + rulesPath(c)
	if c.RulesSource == "nacos" {
		rules = fmt.Sprintf("nacos %s %s/%s/%s", strings.Join(c.Nacos.Servers, ","), c.Nacos.Namespace, c.Nacos.Group, c.Nacos.DataID)
	}
	fmt.Fprintf(w, `Sluice, production: instance %s, roles %s.

  public    http://%s
  metrics   http://%s/metrics
  admin     http://%s/admin/v1/
  limiter   %s
  stock     %s
  queue     %s %s, topic %s
  orders    %s
  rules     %s
  data      %s

  sluice config print says where each setting came from (limiter.redis: %s).

`, c.InstanceID, strings.Join(c.Roles, ","), l.public.Addr(), l.internal.Addr(), l.admin.Addr(),
		shown["limiter.redis"].Value, shown["stock.redis"].Value, c.Queue, strings.Join(c.RocketMQ.NameServers, ","), c.RocketMQ.Topic,
		shown["orders"].Value, rules, c.DataDir, shown["limiter.redis"].Origin)
}
