package cpu

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// group is one control group with a say in our CPU time.
type group struct {
	quota string // directory of its quota
	usage string // directory of its usage; "": nobody counts it
	v2    bool
}

// maxDepth bounds how many groups are looked at; containers nest four or five deep.
const maxDepth = 32

// groups lists our group and those around it, innermost first, as far as this process can
// see: a container sees nothing above its own.
func groups(root fs.FS) ([]group, error) {
	where, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cgroups of this process: %w", err)
	}
	table, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("mounts of this process: %w", err)
	}
	mounts := cgroupMounts(table)
	cpu, acct, unified := memberships(where)
	if cpu != "" { // v1 has the controller, also on a machine that mounts both
		return levels(find(mounts, "cpu", cpu), find(mounts, "cpuacct", acct), false), nil
	}
	if unified == "" {
		return nil, nil // no control groups at all
	}
	at := find(mounts, "", unified)
	return levels(at, at, true), nil
}

// memberships reads /proc/self/cgroup: lines "id:controllers:path", cgroups(7).
func memberships(text []byte) (cpu, acct, unified string) {
	for line := range bytes.Lines(text) {
		part := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[0] == "0" && part[1] == "" {
			unified = part[2]
		}
		for c := range strings.SplitSeq(part[1], ",") {
			switch c {
			case "cpu":
				cpu = part[2]
			case "cpuacct":
				acct = part[2]
			}
		}
	}
	return cpu, acct, unified
}

// mount is a place where a hierarchy is to be seen.
type mount struct {
	root        string   // the group that is mounted
	point       string   // where, without the leading slash, as fs.FS wants it
	controllers []string // of v1; nil: v2
}

// cgroupMounts reads /proc/self/mountinfo, proc(5): "id parent dev root point options…
// - type source options".
func cgroupMounts(text []byte) []mount {
	var out []mount
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		m := mount{root: unescape(left[3]), point: strings.TrimPrefix(unescape(left[4]), "/")}
		switch right[0] {
		case "cgroup":
			m.controllers = strings.Split(right[2], ",")
		case "cgroup2":
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes what the kernel does to blanks in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// place is a group as a path below a mount point.
type place struct{ point, below string }

// find returns where the group of a hierarchy is to be seen. A path that the mount does
// not contain is one of another namespace: then the mount point is the group nearest to us.
func find(mounts []mount, controller, group string) *place {
	var seen *place
	for _, m := range mounts {
		if controller == "" && m.controllers != nil || controller != "" && !slices.Contains(m.controllers, controller) {
			continue
		}
		if below, ok := inside(m.root, group); ok {
			return &place{m.point, below}
		}
		if seen == nil {
			seen = &place{m.point, "."}
		}
	}
	return seen
}

func inside(root, group string) (below string, ok bool) {
	group = path.Clean("/" + group)
	if root == "/" {
		return "." + group, true
	}
	if below, ok = strings.CutPrefix(group, root); ok && (below == "" || below[0] == '/') {
		return "." + below, true
	}
	return "", false
}

// levels pairs quotas with usages from the innermost group outwards. On v1 the two may be
// hierarchies of their own; only where they say the same about us is a group's usage known.
func levels(quota, usage *place, v2 bool) []group {
	if quota == nil {
		return nil
	}
	var out []group
	for below := path.Clean(quota.below); len(out) < maxDepth; below = path.Dir(below) {
		g := group{quota: path.Join(quota.point, below), v2: v2}
		if usage != nil && path.Clean(usage.below) == path.Clean(quota.below) {
			g.usage = path.Join(usage.point, below)
		}
		out = append(out, g)
		if below == "." {
			break
		}
	}
	return out
}
