package rocketmq

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Config says where the queue is, and its bounds.
type Config struct {
	NameServers []string // host:port, at least one
	Topic       string   // default "seckill_order"
	Group       string   // consumer group; default "seckill_order_consumer"
	Instance    string   // this process; unique, default random: two clients of one name would share a connection and an identity
	AccessKey   string   // optional, with SecretKey
	SecretKey   string

	// SendTimeout bounds one send; default 100 ms. A submit leaves after its own 25 ms;
	// an acknowledgement that comes later still saves recovery a second send.
	SendTimeout time.Duration
	// ConnectTimeout bounds a connection attempt, which holds up every send of the
	// client; default 250 ms.
	ConnectTimeout time.Duration
	MaxAttempts    int           // deliveries of one message, 1 s apart, before the broker's dead-letter topic; default 3600. Recovery decides the reservation long before
	Handlers       int           // handlers at once; default 4
	Probe          time.Duration // between two looks at the brokers; default 1 s
	Settle         time.Duration // see Consumed; default 3 s: three times the delay of a redelivery
}

func (c Config) withDefaults() Config {
	if c.Topic == "" {
		c.Topic = "seckill_order"
	}
	if c.Group == "" {
		c.Group = "seckill_order_consumer"
	}
	if c.Instance == "" {
		c.Instance = rand.Text()
	}
	if c.SendTimeout == 0 {
		c.SendTimeout = 100 * time.Millisecond
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 250 * time.Millisecond
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 3600
	}
	if c.Handlers == 0 {
		c.Handlers = 4
	}
	if c.Probe == 0 {
		c.Probe = time.Second
	}
	if c.Settle == 0 {
		c.Settle = 3 * time.Second
	}
	return c
}

func (c Config) validate() error {
	if len(c.NameServers) == 0 {
		return errors.New("rocketmq: no name server")
	}
	for _, a := range c.NameServers {
		if !strings.Contains(a, ":") {
			return fmt.Errorf("rocketmq: name server %q: want host:port", a)
		}
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		return errors.New("rocketmq: access key and secret key belong together")
	}
	return nil
}

// retryTopic is where the broker puts a group's failed messages.
func (c Config) retryTopic() string { return "%RETRY%" + c.Group }
