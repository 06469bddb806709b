package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

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
		if base, token, err := admin.resolve(); err == nil { // else no running instance is known
			s.AdminURL, s.AdminToken = base, token
		}
		return s, nil
	})
	load = settingsIn(cmd, cmd.PersistentFlags())
	admin.find(cmd)
	return cmd
}

// rulesPath is the rule file of source file.
func rulesPath(c *config.Config) string {
	if c.RulesFile != "" {
		return c.RulesFile
	}
	return filepath.Join(c.DataDir, "rules.json")
}
