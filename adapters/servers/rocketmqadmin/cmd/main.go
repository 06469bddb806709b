// Command rocketmqadmin is package rocketmqadmin for shell scripts.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/sluice-io/sluice/adapters/servers/rocketmqadmin"
)

const usage = `usage: rocketmqadmin ready-namesrv NAMESRV
       rocketmqadmin ready NAMESRV BROKER
       rocketmqadmin topic NAMESRV TOPIC QUEUES
       rocketmqadmin group NAMESRV GROUP`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rocketmqadmin:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "ready" && len(args) == 3:
		err := rocketmqadmin.Ready(args[1])
		if err != nil {
			_ = rocketmqadmin.Announce(args[2]) // for the next question; a broker that is still starting refuses
		}
		return err
	case verb == "ready-namesrv" && len(args) == 2:
		return rocketmqadmin.NamesrvReady(args[1])
	case verb == "topic" && len(args) == 4:
		queues, err := strconv.Atoi(args[3])
		if err != nil {
			return fmt.Errorf("number of queues: %w", err)
		}
		return rocketmqadmin.CreateTopic(args[1], args[2], queues)
	case verb == "group" && len(args) == 3:
		return rocketmqadmin.CreateGroup(args[1], args[2])
	}
	fmt.Fprintln(os.Stderr, usage)
	os.Exit(2)
	return nil
}
