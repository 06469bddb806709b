package main

import (
	"net"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/config"
)

// TestAProductionStartSaysWhatItIsConnectedTo: every store by its address, where the settings
// came from, and no secret.
func TestAProductionStartSaysWhatItIsConnectedTo(t *testing.T) {
	env := map[string]string{
		"SLUICE_LIMITER_REDIS": "redis://:SECRET@10.0.0.1:6379", "SLUICE_STOCK_REDIS": "redis+cluster://10.0.0.2:6379", "SLUICE_QUEUE": "rocketmq",
		"SLUICE_ROCKETMQ_NAME_SERVERS": "10.0.0.3:9876", "SLUICE_ORDERS": "postgres://sluice:SECRET@10.0.0.4:5432/sluice",
		"SLUICE_RULES_SOURCE": "nacos", "SLUICE_NACOS_SERVERS": "10.0.0.5:8848", "SLUICE_NACOS_PASSWORD": "SECRET",
	}
	for _, key := range []string{"TICKET_KEYS", "NONCE_KEY", "DRAW_KEY", "SESSION_KEYS", "ADMIN_TOKENS", "PAYMENT_KEY"} {
		env["SLUICE_"+key] = "a-file"
	}
	c, err := config.Load(config.Sources{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	said := &strings.Builder{}
	announceProduction(said, c, &listeners{open, open, open})
	for _, want := range []string{"production", "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:9876", "10.0.0.4:5432/sluice", "nacos 10.0.0.5:8848 public/DEFAULT_GROUP/sluice.rules", "env SLUICE_LIMITER_REDIS"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if strings.Contains(said.String(), "SECRET") {
		t.Errorf("a secret in\n%s", said)
	}
}

// TestTheEmbeddedBannerTellsTheTimes: when the demonstration opens and closes, and the settings for both.
func TestTheEmbeddedBannerTellsTheTimes(t *testing.T) {
	c, err := config.Load(config.Sources{Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	said := &strings.Builder{}
	announceEmbedded(said, c, &listeners{open, open, open})
	for _, want := range []string{"opening in 5s", "closing 10m later", "--demo.opens_in 1m", "--demo.duration"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}
