package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/rulescmd"
)

// newRules gives the rules commands the rule source's settings alone: a push works from
// them without the rest of a production configuration.
func newRules() *cobra.Command {
	var admin adminFlags
	var load func() (*config.Config, error)
	cmd := rulescmd.New(func() (rulescmd.Settings, error) {
		c, err := load()
		if err != nil && (c.RulesSource == "" || c.RulesSource == "nacos" && len(c.Nacos.Servers) == 0) {
			return rulescmd.Settings{}, err
		}
		n := c.Nacos
		s := rulescmd.Settings{
			Source: c.RulesSource, File: rulesPath(c),
			Nacos: rulescmd.Nacos{Servers: n.Servers, Namespace: n.Namespace, Group: n.Group, DataID: n.DataID, Username: n.Username, Password: n.Password},
		}
		if s.Source == "zookeeper" {
			return s, exit.Code(exit.Usage, errNoZooKeeper)
		}
		admin.dataDir = c.DataDir
		if s.AdminURL, s.AdminToken, err = admin.resolve(); err != nil {
			if admin.url != "" {
				return s, err // one was named: a push must not pass it over
			}
			if exit.Of(err) == exit.Away && errors.Is(err, fs.ErrNotExist) {
				err = exit.Code(exit.Away, fmt.Errorf("no %s here; give --data.dir or --admin", filepath.Join(c.DataDir, readyFile)))
			}
			s.NoAdmin = err
		}
		if s.Source == "nacos" { // a file is each instance's own: what others run says nothing of it
			s.Registry = registry(c)
		}
		return s, nil
	})
	load = settingsIn(cmd, cmd.PersistentFlags())
	for _, set := range config.Describe() { // the rest is taken, and has no effect here
		if f := cmd.PersistentFlags().Lookup(set.Name); f != nil && set.Name != "data.dir" && !strings.HasPrefix(set.Name, "rules.") && !strings.HasPrefix(set.Name, "nacos.") {
			f.Hidden = true
		}
	}
	cmd.PersistentFlags().Lookup("embedded-public").Hidden = true
	admin.find(cmd)
	return cmd
}

// registry opens the instances' table in the limiter store; nil: the store is not known here.
func registry(c *config.Config) rulescmd.Registry {
	if c.LimiterRedis == "" || c.LimiterRedis == config.Embedded {
		return nil
	}
	return func(ctx context.Context) (admission.Fleet, func(), error) {
		ctx, cancel := context.WithTimeout(ctx, connectWithin)
		defer cancel()
		client, err := redis.Open(ctx, c.LimiterRedis, redis.Options{Name: "limiter"})
		if err != nil {
			return nil, nil, away("limiter.redis", err)
		}
		return redis.NewFleet(client), func() { _ = client.Close() }, nil
	}
}

// rulesPath is the rule file of source file.
func rulesPath(c *config.Config) string {
	if c.RulesFile != "" {
		return c.RulesFile
	}
	return filepath.Join(c.DataDir, "rules.json")
}
