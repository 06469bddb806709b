package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"

	"github.com/sluice-io/sluice/lua"
)

// Preload gives every node of the store the scripts, so that the first request of a sale
// does not pay for sending them. It is a saving only: Script recovers from NOSCRIPT.
func Preload(ctx context.Context, c goredis.UniversalClient) error {
	load := func(ctx context.Context, node *goredis.Client) error {
		pipe := node.Pipeline()
		for _, name := range lua.Names() {
			pipe.ScriptLoad(ctx, lua.Source(name))
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	var err error
	switch c := c.(type) {
	case *goredis.ClusterClient:
		err = c.ForEachShard(ctx, load)
	case *goredis.Client:
		err = load(ctx, c)
	default:
		err = errors.New("unknown kind of client")
	}
	if err != nil {
		return Classify("preload scripts", fmt.Errorf("script load: %w", err))
	}
	return nil
}

// RouteLog sends the driver's own words (a dial that failed, a pool that is full) to log,
// at debug level: every fault that matters is also an error of a call. It is the
// driver's setting for the whole process.
func RouteLog(log *slog.Logger) { goredis.SetLogger(driverLog{log}) }

type driverLog struct{ log *slog.Logger }

// Printf implements the driver's logger.
func (l driverLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "driver", "component", "go-redis", "text", fmt.Sprintf(format, v...))
}
