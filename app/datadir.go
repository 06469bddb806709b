package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-io/sluice/app/exit"
)

// dataDir is the locked data directory of one process.
type dataDir struct{ lock *os.File }

// lockDataDir makes the directory and locks it against a second process: two of them
// would share one SQLite file and one admin token.
func lockDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusable(path, err)
	}
	name := filepath.Join(path, "lock")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusable(path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, exit.Code(exit.Usage, fmt.Errorf("data.dir: %s is in use by another process; stop it, or give another --data.dir", path))
		}
		return nil, unusable(path, fmt.Errorf("lock %s: %w", name, err))
	}
	return &dataDir{f}, nil
}

// unusable is a data directory that cannot be written.
func unusable(path string, err error) error {
	return exit.Code(exit.Usage, fmt.Errorf("data.dir: %s: %w; give another --data.dir, which this user can write", path, err))
}

// unlock gives the directory back.
func (d *dataDir) unlock() { _ = d.lock.Close() }
