// Package cpu measures how much of the CPU time that this process may use is used: the
// fraction that Sentinel's system rules and the overload machine are fed.
//
// The fraction is of what the kernel lets us have, not of the machine: of the quota of our
// control group and of every group around it (cgroup v1 and v2), of which the one most
// used counts, for it is the one that throttles; and of the processors that the Go runtime
// uses, for our own process. Neighbours outside those quotas are in none of these figures:
// a busy host is no reason to shed.
//
// When the kernel's files cannot be read a sample is missing and the last one holds; after
// maxMissing in a row the fraction is [Unknown], and rules on it let pass. It is a reading
// that protects us, not one that admits anybody.
package cpu
