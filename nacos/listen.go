package nacos

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/config_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/common/logger"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
)

// sdkTable guards the SDK's table of clients, of which there is one in a process, and which
// it writes without a lock when a client is closed: two sources may end at once.
var sdkTable sync.Mutex

// listen is one SDK client's whole life: until ctx ends, and then as long as the SDK needs,
// which knows no context: on a server that hangs its constructor takes 9 s. changed is
// called from the SDK's goroutines.
func listen(ctx context.Context, cfg Config, servers []server, known *outage, changed func()) error {
	dir := cfg.CacheDir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "sluice-nacos-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	client, err := connect(cfg, servers, dir, known, func() bool { return ctx.Err() != nil })
	if err != nil {
		return fmt.Errorf("nacos client: %w", err)
	}
	key := vo.ConfigParam{DataId: cfg.DataID, Group: cfg.Group, OnChange: func(_, _, _, _ string) { changed() }}
	// The listener goes first: closing a client that still has one lets its background loop
	// connect once more, to a connection that nobody closes.
	defer func() {
		_ = client.CancelListenConfig(key)
		sdkTable.Lock()
		defer sdkTable.Unlock()
		client.CloseClient()
	}()
	if ctx.Err() != nil {
		return nil
	}
	if err := client.ListenConfig(key); err != nil {
		return fmt.Errorf("nacos listener: %w", err)
	}
	<-ctx.Done()
	return nil
}

func connect(cfg Config, servers []server, dir string, known *outage, ended func() bool) (config_client.IConfigClient, error) {
	// Before the client: without one it opens a log file of its own.
	logger.SetLogger(sdkLog{cfg.Log.With("component", "nacos-sdk"), known, cfg.Now, ended})
	var list []constant.ServerConfig
	for _, s := range servers {
		list = append(list, constant.ServerConfig{Scheme: s.scheme, IpAddr: s.host, Port: s.port, GrpcPort: s.port + grpcOffset, ContextPath: "/nacos"})
	}
	return clients.NewConfigClient(vo.NacosClientParam{
		ServerConfigs: list,
		ClientConfig: &constant.ClientConfig{
			NamespaceId:         cfg.Namespace,
			Username:            cfg.Username,
			Password:            cfg.Password,
			TimeoutMs:           uint64(cfg.Timeout.Milliseconds()),
			CacheDir:            filepath.Join(dir, "cache"),
			LogDir:              filepath.Join(dir, "log"),
			NotLoadCacheAtStart: true,
			DisableUseSnapShot:  true,
			AppName:             "sluice",
			TLSCfg: constant.TLSConfig{Appointed: true, Enable: servers[0].scheme == "https",
				CaFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile},
		},
	})
}

// sdkLog is the SDK's logger on ours. Its lines may hold whole documents: they are cut.
type sdkLog struct {
	log    *slog.Logger
	outage *outage
	now    func() time.Time
	ended  func() bool // nobody listens any more: that connections break is the end of it
}

const maxLine = 500 // bytes

func cut(s string) string {
	if len(s) > maxLine {
		return s[:maxLine] + "…"
	}
	return s
}

// absentCache is in a warning of every first listener: the SDK looks for a document in its
// cache, which is empty by our settings. It says nothing about anything.
const absentCache = "cause file doesn't exist"

func (l sdkLog) warn(text string) {
	level := slog.LevelDebug // never ours to act on: the poll decides
	if !l.ended() && !strings.Contains(text, absentCache) {
		level = l.outage.sdkLevel(l.now())
	}
	l.log.Log(context.Background(), level, "nacos sdk", "text", cut(text))
}

func (l sdkLog) Info(args ...interface{})  { l.log.Debug("nacos sdk", "text", cut(fmt.Sprint(args...))) }
func (l sdkLog) Warn(args ...interface{})  { l.warn(fmt.Sprint(args...)) }
func (l sdkLog) Error(args ...interface{}) { l.warn(fmt.Sprint(args...)) }
func (l sdkLog) Debug(args ...interface{}) {}
func (l sdkLog) Infof(f string, args ...interface{}) {
	l.log.Debug("nacos sdk", "text", cut(fmt.Sprintf(f, args...)))
}
func (l sdkLog) Warnf(f string, args ...interface{})  { l.warn(fmt.Sprintf(f, args...)) }
func (l sdkLog) Errorf(f string, args ...interface{}) { l.warn(fmt.Sprintf(f, args...)) }
func (l sdkLog) Debugf(string, ...interface{})        {}
func (l sdkLog) Close() error                         { return nil }
