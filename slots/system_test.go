package slots

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alibaba/sentinel-golang/util"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/overload/cpu"
	"github.com/sluice-io/sluice/rules"
)

// system is a bundle with one system rule and no other.
func systemRule(rule string) string {
	return `{"schema":1,"version":1,"sentinel":{"flow":"none","hotspot":"none","system":[` + rule + `]},"limits":{"user":{"rate_per_s":1000,"burst":1000}}}`
}

// calm waits until nothing of former tests is in Sentinel's windows, and leaves no load behind.
func (b *bed) calm() {
	sentinelClock.moveOn(2 * time.Second)
	rules.FeedCPU(cpu.Unknown)
	b.t.Cleanup(func() { rules.FeedCPU(cpu.Unknown); rules.FeedLoad(cpu.Unknown) })
}

// inside is a request that both chains let pass and that has not ended.
func (b *bed) inside(user string) *admission.Request {
	b.t.Helper()
	req := b.request(user)
	b.want(b.gate.Enter(req), admission.Pass, admission.StageNone)
	b.want(b.gate.Reserve(b.t.Context(), req), admission.Pass, admission.StageNone)
	return req
}

func (b *bed) passes() {
	b.t.Helper()
	b.want(b.gate.Enter(b.request("7")), admission.Pass, admission.StageNone)
}

func (b *bed) sheds() {
	b.t.Helper()
	d := b.gate.Enter(b.request("7"))
	b.want(d, admission.Overloaded, admission.StageSystem)
	if d.Reason != admission.ReasonSystemRule || d.RetryAfter <= 0 || d.Outcome.Row().HTTP != 503 {
		b.t.Errorf("%+v, want a 503 of a system rule with a wait", d)
	}
}

// TestT06 is a container of one CPU on a machine of sixteen, cgroup v1 and v2: its own
// usage sheds through the real chain, its neighbours' does not.
func TestT06SystemRuleShedsByOwnQuotaAlone(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	trees := map[string]struct {
		fs   fstest.MapFS
		used func(fstest.MapFS, time.Duration)
	}{
		"v2": {fstest.MapFS{
			"proc/self/cgroup":      file("0::/\n"),
			"proc/self/mountinfo":   file("30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
			"sys/fs/cgroup/cpu.max": file("100000 100000\n"),
		}, func(m fstest.MapFS, d time.Duration) {
			m["sys/fs/cgroup/cpu.stat"] = file(fmt.Sprintf("usage_usec %d\n", d.Microseconds()))
		}},
		"v1": {fstest.MapFS{
			"proc/self/cgroup":                            file("4:cpu,cpuacct:/docker/abc\n"),
			"proc/self/mountinfo":                         file("34 32 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  file("100000\n"),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": file("100000\n"),
		}, func(m fstest.MapFS, d time.Duration) {
			m["sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"] = file(fmt.Sprint(d.Nanoseconds()))
		}},
	}
	for name, c := range trees {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, systemRule(`{"metricType":4,"triggerCount":0.75}`))
			b.calm()
			s, used := cpu.NewSampler(c.fs, func() int { return 16 }), time.Duration(0)
			period := func(n int, share float64) {
				sentinelClock.moveOn(cpu.Every)
				used += time.Duration(share * float64(cpu.Every))
				c.used(c.fs, used)
				if fraction, ok := s.Sample(opening.Add(time.Duration(n) * cpu.Every)); ok {
					rules.FeedCPU(fraction)
				}
			}
			period(0, 0)
			b.passes() // nothing is known yet
			c.fs["proc/loadavg"] = file("15.90 15.00 14.00 16/900 7\n")
			period(1, 0.1)
			b.passes() // the host is busy, we are not
			period(2, 1)
			b.sheds()
			if d := b.gate.Call(admission.CallStatus, b.request("7")); d.Refused() {
				t.Errorf("a status query was refused: %+v", d)
			}
			period(3, 0.5)
			b.passes()
		})
	}
}

// TestT06UnderARealQuota holds a process of its own by a real quota of a twentieth of a
// CPU: busy, it sheds; idle beside busy neighbours, it does not.
func TestT06UnderARealQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("holds the machine for seconds; the cgroup trees of TestT06SystemRuleShedsByOwnQuotaAlone say the same")
	}
	const role = "SLUICE_TEST_T06"
	if dirs := os.Getenv(role); dirs != "" {
		underQuota(t, filepath.SplitList(dirs))
		return
	}
	dirs := quotaGroup(t)
	neighbours := make(chan struct{})
	for range runtime.NumCPU() {
		go spin(neighbours)
	}
	defer close(neighbours)
	child := exec.Command(os.Args[0], "-test.run=^TestT06UnderARealQuota$", "-test.v")
	child.Env = append(os.Environ(), role+"="+joinList(dirs))
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// underQuota is the process that is held.
func underQuota(t *testing.T, dirs []string) {
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, os.Getpid()), 0); err != nil {
			t.Fatal(err)
		}
	}
	b := newBed(t, systemRule(`{"metricType":4,"triggerCount":0.75}`))
	b.calm()
	s := cpu.NewSampler(os.DirFS("/"), func() int { return runtime.GOMAXPROCS(0) })
	if q, ok := s.Quota(); !ok || q > 0.051 {
		t.Fatalf("quota %v, %v; want a twentieth", q, ok)
	}
	feed := func(d time.Duration) float64 {
		t.Helper()
		s.Sample(time.Now())
		time.Sleep(d) // real time: it is the kernel that measures
		fraction, ok := s.Sample(time.Now())
		if !ok {
			t.Fatal("no sample")
		}
		t.Logf("%.2f of the quota", fraction)
		sentinelClock.moveOn(d)
		sentinelClock.moveOn(d)
		rules.FeedCPU(fraction)
		return fraction
	}
	feed(2 * time.Second)
	b.passes()
	busy := make(chan struct{})
	go spin(busy)
	// Busy neighbours may leave it less than its quota for a while.
	for rounds := 0; feed(2*time.Second) <= 0.8; rounds++ {
		if rounds == 20 {
			t.Fatal("busy, and never at its quota")
		}
	}
	b.sheds()
	close(busy)
}

// spin uses a processor until told to stop.
func spin(until <-chan struct{}) {
	done := false
	for !done {
		select {
		case <-until:
			done = true
		default: // that is its work
		}
	}
}

// quotaGroup makes a control group with a quota of its own and returns its directories.
// It skips where that cannot be done: without root, in a container whose cgroups are read
// only, or where this process's own group may not have children with the controller.
func quotaGroup(t *testing.T) []string {
	t.Helper()
	name := fmt.Sprintf("sluice-test-%d", os.Getpid())
	write := func(dir, file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
	make := func(dir string, files ...[2]string) error {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // empty again: the child is gone
		for _, f := range files {
			if err := write(dir, f[0], f[1]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, v1 := range [][2]string{{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"}, {"/sys/fs/cgroup/cpu,cpuacct", ""}} {
		if _, err := os.Stat(filepath.Join(v1[0], "cpu.cfs_quota_us")); err != nil {
			continue
		}
		dirs := []string{filepath.Join(v1[0], name)}
		err := make(dirs[0], [2]string{"cpu.cfs_period_us", "100000"}, [2]string{"cpu.cfs_quota_us", "5000"})
		if err == nil && v1[1] != "" && !sameDir(v1[0], v1[1]) {
			dirs = append(dirs, filepath.Join(v1[1], name))
			err = make(dirs[1])
		}
		if err != nil {
			t.Skipf("no cgroup v1 with a quota can be made here: %v", err)
		}
		return dirs
	}
	dir := filepath.Join("/sys/fs/cgroup", name)
	if err := make(dir, [2]string{"cpu.max", "5000 100000"}); err != nil {
		t.Skipf("no cgroup v2 with a quota can be made here: %v", err)
	}
	return []string{dir}
}

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

func joinList(dirs []string) string {
	out := dirs[0]
	for _, d := range dirs[1:] {
		out += string(filepath.ListSeparator) + d
	}
	return out
}

// TestSystemVerdictHoldsForAMillisecond and no longer.
func TestSystemVerdictHoldsForAMillisecond(t *testing.T) {
	b := newBed(t, systemRule(`{"metricType":4,"triggerCount":0.75}`))
	b.calm()
	fixed := &movedClock{Clock: util.NewMockClock()}
	fixed.ahead.Store(int64(sentinelClock.CurrentTimeMillis() - fixed.CurrentTimeMillis()))
	util.SetClock(fixed)
	defer util.SetClock(sentinelClock)
	b.passes()
	rules.FeedCPU(1)
	b.passes()
	fixed.moveOn(time.Millisecond)
	b.sheds()
	rules.FeedCPU(0)
	b.sheds()
	fixed.moveOn(time.Millisecond)
	b.passes()
}

// TestSystemConcurrency: requests in flight, and what the second chain has taken alone.
func TestSystemConcurrency(t *testing.T) {
	b := newBed(t, systemRule(`{"metricType":2,"triggerCount":2}`))
	b.calm()
	var inside []*admission.Request
	for _, user := range []string{"1", "2"} {
		inside = append(inside, b.inside(user))
	}
	b.sheds()
	inside[0].End(admission.Decision{Outcome: admission.Queued})
	b.passes()
	inside[1].End(admission.Decision{Outcome: admission.Queued})
}

// TestSystemRT: the mean of what the second chain took; a first chain is never slow.
func TestSystemRT(t *testing.T) {
	b := newBed(t, systemRule(`{"metricType":1,"triggerCount":200}`))
	b.calm()
	took := func(d time.Duration) {
		req := b.inside("7")
		sentinelClock.moveOn(d)
		req.End(admission.Decision{Outcome: admission.Queued})
	}
	took(20 * time.Millisecond)
	b.passes()
	took(450 * time.Millisecond)
	b.sheds()
	sentinelClock.moveOn(2 * time.Second) // nobody is slow any more
	b.passes()
}

// TestSystemQPS: a submit passes two chains and counts once.
func TestSystemQPS(t *testing.T) {
	b := newBed(t, systemRule(`{"metricType":3,"triggerCount":3}`))
	b.calm()
	for _, user := range []string{"1", "2", "3"} {
		b.inside(user).End(admission.Decision{Outcome: admission.Queued})
	}
	b.sheds()
	sentinelClock.moveOn(2 * time.Second)
	b.passes()
}

// TestSystemLoadNeedsBBR: the host's load alone refuses nobody; with requests in flight
// beyond what the instance completes, it does.
func TestSystemLoadNeedsBBR(t *testing.T) {
	b := newBed(t, systemRule(`{"metricType":0,"triggerCount":4,"strategy":1}`))
	b.calm()
	rules.FeedLoad(30)
	b.passes()
	var inside []*admission.Request
	for _, user := range []string{"1", "2"} {
		inside = append(inside, b.inside(user))
	}
	b.sheds()
	for _, req := range inside {
		req.End(admission.Decision{Outcome: admission.Queued})
	}
	b.passes()
}
