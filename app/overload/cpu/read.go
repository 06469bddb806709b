package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// capacity is how many processors a group may use: +Inf without a quota.
func (g group) capacity(root fs.FS) (float64, error) {
	if !g.v2 {
		quota, err := number(root, path.Join(g.quota, "cpu.cfs_quota_us"))
		if errors.Is(err, fs.ErrNotExist) || err == nil && quota < 0 {
			return math.Inf(1), nil
		}
		period, err2 := number(root, path.Join(g.quota, "cpu.cfs_period_us"))
		return share(quota, period, errors.Join(err, err2))
	}
	text, err := fs.ReadFile(root, path.Join(g.quota, "cpu.max"))
	if errors.Is(err, fs.ErrNotExist) {
		return math.Inf(1), nil // the root group, or the controller is off here
	}
	part := strings.Fields(string(text))
	if err != nil || len(part) != 2 {
		return 0, fmt.Errorf("cpu.max of %s is %q: %w", g.quota, text, errors.Join(err, errFormat))
	}
	if part[0] == "max" {
		return math.Inf(1), nil
	}
	quota, err := strconv.ParseInt(part[0], 10, 64)
	period, err2 := strconv.ParseInt(part[1], 10, 64)
	return share(quota, period, errors.Join(err, err2))
}

func share(quota, period int64, err error) (float64, error) {
	if err == nil && (quota <= 0 || period <= 0) {
		err = errFormat
	}
	if err != nil {
		return 0, fmt.Errorf("CPU quota %d per %d: %w", quota, period, err)
	}
	return float64(quota) / float64(period), nil
}

// used is the CPU time that the group has used since it was made.
func (g group) used(root fs.FS) (time.Duration, error) {
	if !g.v2 {
		ns, err := number(root, path.Join(g.usage, "cpuacct.usage"))
		return time.Duration(ns), err
	}
	text, err := fs.ReadFile(root, path.Join(g.usage, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("cpu.stat of %s has no usage_usec: %w", g.usage, errFormat)
}

// processUsed is the CPU time of this process alone, /proc/self/stat, proc(5).
func processUsed(root fs.FS) (time.Duration, error) {
	const (
		tick       = 10 * time.Millisecond // USER_HZ is 100 towards programs, whatever the kernel's own is
		utime      = 14 - 3                // positions behind the command, which may hold anything
		stime      = 15 - 3
		behindName = ") "
	)
	text, err := fs.ReadFile(root, "proc/self/stat")
	if err != nil {
		return 0, err
	}
	s := string(text)
	part := strings.Fields(s[strings.LastIndex(s, behindName)+len(behindName):])
	if !strings.Contains(s, behindName) || len(part) <= stime {
		return 0, fmt.Errorf("proc/self/stat: %w", errFormat)
	}
	u, err := strconv.ParseInt(part[utime], 10, 64)
	t, err2 := strconv.ParseInt(part[stime], 10, 64)
	return time.Duration(u+t) * tick, errors.Join(err, err2)
}

// Load reads the load average of the last minute: the whole host's, neighbours included.
func Load(root fs.FS) (float64, error) {
	text, err := fs.ReadFile(root, "proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil || !(load >= 0) {
		return 0, fmt.Errorf("proc/loadavg is %q: %w", first, errFormat)
	}
	return load, nil
}

var errFormat = errors.New("not as the kernel writes it")

func number(root fs.FS, name string) (int64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}
