package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/postgres"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/adapters/rocketmq"
	"github.com/sluice-io/sluice/adapters/sqlite"
	"github.com/sluice-io/sluice/adapters/sqlorders"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
)

// stores is everything outside this process, behind the ports.
type stores struct {
	limiter goredis.UniversalClient
	stock   goredis.UniversalClient
	server  *embedded.Server // nil in production

	nonces    *redis.Nonces
	leases    *redis.Leases
	room      *redis.Room
	roomCopy  admission.RoomStates // of the rooms' states, in the stock store; nil embedded, where both are one
	fleet     *redis.Fleet
	locks     *redis.Leadership
	stocks    *redis.Stock
	mirror    *redis.Mirror
	events    *redis.Events
	announcer *redis.Announcer
	queue     admission.Queue
	orders    admission.Orders
}

// connectWithin bounds the first contact with each store.
const connectWithin = 5 * time.Second

// openStores connects to everything that the configuration names. A store that is away
// is an exit code 3 that names the setting.
func openStores(ctx context.Context, c *config.Config, reg prometheus.Registerer, log *slog.Logger) (_ *stores, err error) {
	redis.RouteLog(log)
	s := &stores{} // not the result: what was opened is closed also when the result is nil
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	limiterURL, stockURL := c.LimiterRedis, c.StockRedis
	if c.IsEmbedded() {
		if s.server, err = embedded.Start(); err != nil {
			return nil, fmt.Errorf("embedded store: %w", err)
		}
		limiterURL, stockURL = s.server.URL(), s.server.URL()
	}
	metrics := redis.NewMetrics(reg)
	options := redis.Options{Metrics: metrics}
	if s.server != nil {
		// It interprets Lua on this machine's cores: callers queue for it as long as the
		// stage budgets of an embedded service let them.
		options.PoolTimeout = time.Second
	}
	options.Name = "limiter"
	if s.limiter, err = openRedis(ctx, "limiter.redis", limiterURL, options); err != nil {
		return nil, err
	}
	options.Name = "stock"
	if s.stock, err = openRedis(ctx, "stock.redis", stockURL, options); err != nil {
		return nil, err
	}
	s.nonces, s.leases, s.room, s.fleet = redis.NewNonces(s.limiter), redis.NewLeases(s.limiter), redis.NewRoom(s.limiter), redis.NewFleet(s.limiter)
	if s.server == nil {
		s.roomCopy = redis.NewRoom(s.stock)
	}
	s.locks = redis.NewLeadership(s.limiter)
	s.events = redis.NewEvents(s.stock, time.Now, log)
	s.announcer = redis.NewAnnouncer(s.events, log)
	s.stocks = redis.NewStock(s.stock, redis.StockOptions{Crossed: s.announcer.Crossed})
	s.mirror = redis.NewMirror(s.stock)

	if s.orders, err = openOrders(ctx, c); err != nil {
		return nil, err
	}
	if s.queue, err = openQueue(ctx, c, s.stock, log); err != nil {
		return nil, err
	}
	return s, nil
}

func openRedis(ctx context.Context, setting, url string, o redis.Options) (goredis.UniversalClient, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	client, err := redis.Open(ctx, url, o)
	if err != nil {
		return nil, away(setting, err)
	}
	if err := redis.Preload(ctx, client); err != nil {
		_ = client.Close()
		return nil, away(setting, err)
	}
	return client, nil
}

// openOrders opens the database and brings its schema up to date; that is safe from
// many processes at once.
func openOrders(ctx context.Context, c *config.Config) (admission.Orders, error) {
	var orders admission.Orders
	var err error
	if c.Orders == config.Embedded {
		orders, err = sqlite.Open(filepath.Join(c.DataDir, "orders.db"), sqlorders.Config{})
	} else {
		orders, err = postgres.Open(c.Orders, postgres.Config{})
	}
	if err != nil {
		return nil, away("orders", err)
	}
	within, cancel := context.WithTimeout(ctx, 6*connectWithin)
	defer cancel()
	if err := orders.Migrate(within); err != nil {
		_ = orders.Close()
		return nil, away("orders", err)
	}
	return orders, nil
}

func openQueue(ctx context.Context, c *config.Config, stock goredis.UniversalClient, log *slog.Logger) (admission.Queue, error) {
	if c.Queue == config.Embedded {
		q, err := redis.NewQueue(stock, redis.QueueConfig{Consumer: c.InstanceID, SendTimeout: time.Second}, log)
		if err != nil {
			return nil, away("queue", err)
		}
		return q, ready(ctx, q)
	}
	r := c.RocketMQ
	q, err := rocketmq.Open(rocketmq.Config{NameServers: r.NameServers, Topic: r.Topic, Group: r.Group, AccessKey: r.AccessKey, SecretKey: r.SecretKey}, log)
	if err != nil {
		return nil, away("queue", err)
	}
	return q, ready(ctx, q)
}

// ready waits for warm routes. A queue that is away does not keep the service from
// starting: reservations hold and recovery sends them; readiness says what is missing.
func ready(ctx context.Context, q admission.Queue) error {
	within, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	if err := q.Ready(within); err != nil && !errors.Is(err, admission.ErrUnavailable) && !errors.Is(err, admission.ErrUnknownResult) {
		return away("queue", err)
	}
	return nil
}

// away names the setting whose dependency failed; nil stays nil.
func away(setting string, err error) error {
	if err == nil {
		return nil
	}
	return exit.Code(exit.Away, fmt.Errorf("%s: %w", setting, err))
}

func (s *stores) close() {
	if s.queue != nil {
		_ = s.queue.Close()
	}
	if s.orders != nil {
		_ = s.orders.Close()
	}
	for _, c := range []goredis.UniversalClient{s.limiter, s.stock} {
		if c != nil {
			_ = c.Close()
		}
	}
	if s.server != nil {
		s.server.Close()
	}
}
