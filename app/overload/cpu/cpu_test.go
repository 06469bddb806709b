package cpu_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-io/sluice/app/overload/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// tree is a machine of files.
type tree fstest.MapFS

func (t tree) set(name, text string) { t[name] = &fstest.MapFile{Data: []byte(text)} }

// process sets the CPU time of our process, in seconds.
func (t tree) process(used float64) {
	t.set("proc/self/stat", fmt.Sprintf("7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 %d 0 0 0 20 0 1 0 1 1 1\n", int(used*100)))
}

func (t tree) sampler(cpus int) *cpu.Sampler {
	return cpu.NewSampler(fstest.MapFS(t), func() int { return cpus })
}

// v2 is a container of a unified hierarchy with its own namespace.
func v2(max string) tree {
	t := tree{}
	t.set("proc/self/cgroup", "0::/\n")
	t.set("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n")
	t.set("sys/fs/cgroup/cpu.max", max+"\n")
	t.process(0)
	return t
}

func (t tree) v2Used(dir string, seconds float64) {
	t.set(dir+"/cpu.stat", fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 2\nnr_periods 3\n", int(seconds*1e6)))
}

// v1 is a container of cgroup v1 that sees its own group bound over the controllers.
func v1(quota, period string) tree {
	t := tree{}
	t.set("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/system.slice/docker.service\n")
	t.set("proc/self/mountinfo",
		"33 32 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"+
			"34 32 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n"+
			"35 32 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
	t.set("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", quota)
	t.set("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", period)
	t.process(0)
	return t
}

func (t tree) v1Used(dir string, seconds float64) {
	t.set(dir+"/cpuacct.usage", fmt.Sprint(int(seconds*1e9)))
}

// after samples twice, a second apart, with the change in between.
func after(t *testing.T, s *cpu.Sampler, change func()) float64 {
	t.Helper()
	if _, ok := s.Sample(start); ok {
		t.Fatal("a first sample has nothing to compare with")
	}
	change()
	got, ok := s.Sample(start.Add(time.Second))
	if !ok {
		t.Fatal("no sample")
	}
	return got
}

func near(t *testing.T, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.011 {
		t.Errorf("fraction %.3f, want %.3f", got, want)
	}
}

// TestT06OwnQuotaNotTheHost: a container of one CPU on a machine of sixteen. Its own usage
// counts, against its own quota; whatever the neighbours do.
func TestT06OwnQuotaNotTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		tree tree
		used func(tree, float64)
	}{
		"v2": {v2("100000 100000"), func(t tree, s float64) { t.v2Used("sys/fs/cgroup", s) }},
		"v1": {v1("100000", "100000"), func(t tree, s float64) { t.v1Used("sys/fs/cgroup/cpu,cpuacct", s) }},
	} {
		for _, used := range []float64{0, 0.5, 1} {
			t.Run(fmt.Sprintf("%s %v", name, used), func(t *testing.T) {
				c.used(c.tree, 100)
				c.tree.process(90)
				c.tree.set("proc/loadavg", "14.40 14.00 13.00 15/900 7\n") // nine tenths of the host, by others
				near(t, after(t, c.tree.sampler(16), func() {
					c.used(c.tree, 100+used)
					c.tree.process(90 + used)
				}), used)
			})
		}
	}
}

// TestWithoutAQuotaTheProcessCounts: usage of a group without a quota is not read, for on
// a bare machine it is everybody's.
func TestWithoutAQuotaTheProcessCounts(t *testing.T) {
	for name, tr := range map[string]tree{"v2": v2("max 100000"), "v1": v1("-1", "100000"), "none": {}} {
		t.Run(name, func(t *testing.T) {
			tr.v2Used("sys/fs/cgroup", 0)
			tr.v1Used("sys/fs/cgroup/cpu,cpuacct", 0)
			tr.process(5)
			near(t, after(t, tr.sampler(4), func() {
				tr.v2Used("sys/fs/cgroup", 4)
				tr.v1Used("sys/fs/cgroup/cpu,cpuacct", 4)
				tr.process(6)
			}), 0.25)
		})
	}
}

// TestNestedGroups: the group that is nearest to its quota counts, wherever it stands.
func TestNestedGroups(t *testing.T) {
	build := func() tree {
		tr := tree{}
		tr.set("proc/self/cgroup", "0::/kubepods.slice/pod1/box\n")
		tr.set("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
		tr.set("sys/fs/cgroup/kubepods.slice/pod1/box/cpu.max", "200000 100000")
		tr.set("sys/fs/cgroup/kubepods.slice/pod1/cpu.max", "50000 100000")
		tr.set("sys/fs/cgroup/kubepods.slice/cpu.max", "max 100000")
		tr.process(0)
		for _, dir := range []string{"sys/fs/cgroup", "sys/fs/cgroup/kubepods.slice", "sys/fs/cgroup/kubepods.slice/pod1", "sys/fs/cgroup/kubepods.slice/pod1/box"} {
			tr.v2Used(dir, 0)
		}
		return tr
	}
	t.Run("the pod's is tighter", func(t *testing.T) {
		tr := build()
		s := tr.sampler(16)
		if q, ok := s.Quota(); !ok || q != 0.5 {
			t.Errorf("quota %v, %v; want 0.5", q, ok)
		}
		near(t, after(t, s, func() {
			tr.v2Used("sys/fs/cgroup/kubepods.slice/pod1/box", 0.4)
			tr.v2Used("sys/fs/cgroup/kubepods.slice/pod1", 0.5) // with a sidecar
			tr.v2Used("sys/fs/cgroup/kubepods.slice", 9)
			tr.v2Used("sys/fs/cgroup", 15)
		}), 1)
	})
	t.Run("our own is nearer to its end", func(t *testing.T) {
		tr := build()
		tr.set("sys/fs/cgroup/kubepods.slice/pod1/box/cpu.max", "25000 100000")
		near(t, after(t, tr.sampler(16), func() {
			tr.v2Used("sys/fs/cgroup/kubepods.slice/pod1/box", 0.25)
			tr.v2Used("sys/fs/cgroup/kubepods.slice/pod1", 0.3)
		}), 1)
	})
}

// TestSeparateHierarchies: cpu and cpuacct need not agree on v1; our own process then
// stands in for a group that nobody counts.
func TestSeparateHierarchies(t *testing.T) {
	tr := tree{}
	tr.set("proc/self/cgroup", "2:cpuacct:/\n1:cpu:/box\n0::/\n")
	tr.set("proc/self/mountinfo", "1 0 0:1 / /cg/cpu rw - cgroup cgroup rw,cpu\n2 0 0:2 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n")
	tr.set("cg/cpu/box/cpu.cfs_quota_us", "50000\n")
	tr.set("cg/cpu/box/cpu.cfs_period_us", "100000\n")
	tr.set("cg/cpu/cpu.cfs_quota_us", "-1\n")
	tr.v1Used("cg/cpuacct", 0)
	tr.process(0)
	near(t, after(t, tr.sampler(16), func() {
		tr.v1Used("cg/cpuacct", 16)
		tr.process(0.4)
	}), 0.8)
}

// TestForeignNamespace: a path that no mount contains is seen from its mount point.
func TestForeignNamespace(t *testing.T) {
	tr := v2("100000 100000")
	tr.set("proc/self/cgroup", "0::/../../pod/box\n")
	tr.v2Used("sys/fs/cgroup", 0)
	tr.set("proc/self/mountinfo", `30 23 0:26 /../other /sys/fs/cg\040roup ro - cgroup2 cgroup rw`+"\n")
	tr.set("sys/fs/cg roup/cpu.max", "100000 100000")
	tr.v2Used("sys/fs/cg roup", 0)
	near(t, after(t, tr.sampler(16), func() { tr.v2Used("sys/fs/cg roup", 0.7) }), 0.7)
}

// TestMissingSamples: what cannot be read, counters that begin anew and a clock that
// stands are no samples, and the next one is right again.
func TestMissingSamples(t *testing.T) {
	tr := v2("100000 100000")
	tr.v2Used("sys/fs/cgroup", 50)
	tr.process(50)
	s := tr.sampler(2)
	s.Sample(start)
	if _, ok := s.Sample(start); ok {
		t.Error("time stood still")
	}
	if _, ok := s.Sample(start.Add(-time.Second)); ok {
		t.Error("time went back")
	}
	s.Sample(start)
	tr.v2Used("sys/fs/cgroup", 0)
	tr.process(0)
	if got, ok := s.Sample(start.Add(time.Second)); ok {
		t.Errorf("the counters began anew, and it says %v", got)
	}
	tr.v2Used("sys/fs/cgroup", 0.3)
	if got, ok := s.Sample(start.Add(2 * time.Second)); !ok || math.Abs(got-0.3) > 0.01 {
		t.Errorf("%v, %v; want 0.3", got, ok)
	}
	for name, text := range map[string]string{
		"proc/self/stat": "7 x", "sys/fs/cgroup/cpu.stat": "usage_usec many\n", "proc/loadavg": "NaN 1",
	} {
		tr.set(name, text)
	}
	if got, ok := s.Sample(start.Add(3 * time.Second)); ok {
		t.Errorf("nothing can be read, and it says %v", got)
	}
	if l, err := cpu.Load(fstest.MapFS(tr)); err == nil {
		t.Errorf("load %v of nonsense", l)
	}
	for _, bad := range []string{"0 100000", "-1 100000", "100000", "a b", "100000 0"} {
		tr.set("sys/fs/cgroup/cpu.max", bad)
		if q, ok := s.Quota(); ok {
			t.Errorf("cpu.max %q is a quota of %v", bad, q)
		}
	}
}

// TestRun feeds what it samples, holds it while samples are missing, and lets go of it.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := v2("100000 100000")
		tr.v2Used("sys/fs/cgroup", 0)
		tr.set("proc/loadavg", "1.25 1 1 1/2 3\n")
		fed := make(chan [2]float64, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			times := 0
			tr.sampler(4).Run(ctx, cpu.Every, func(c, l float64) {
				times++
				fed <- [2]float64{c, l}
				tr.v2Used("sys/fs/cgroup", float64(times)*0.45) // of half a second each
				if times >= 2 {
					delete(tr, "sys/fs/cgroup/cpu.stat")
					delete(tr, "proc/self/stat")
				}
			}, slog.New(slog.DiscardHandler))
		}()
		want := func(c float64) {
			t.Helper()
			if got := <-fed; math.Abs(got[0]-c) > 1e-9 || got[1] != 1.25 {
				t.Errorf("fed %v, want %v and load 1.25", got, c)
			}
		}
		want(0)
		want(0.9)
		for range 10 {
			want(0.9) // missing: held
		}
		want(cpu.Unknown)
		cancel()
		<-done
	})
}
