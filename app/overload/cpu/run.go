package cpu

import (
	"context"
	"log/slog"
	"time"
)

// Every is how often a fraction is fed: the period of the overload machine, and several of
// the kernel's own quota periods of 100 ms.
const Every = 500 * time.Millisecond

// maxMissing is how many samples may be missing before the last one no longer holds: 5 s.
const maxMissing = 10

// Run feeds CPU fraction and load average every period until ctx ends. A missing sample
// feeds the last one, and Unknown before the first and after maxMissing in a row.
func (s *Sampler) Run(ctx context.Context, every time.Duration, feed func(cpu, load float64), log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	cpu, load, missing := held{value: Unknown}, held{value: Unknown}, false
	s.Sample(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		fraction, ok := s.Sample(time.Now())
		cpu.take(fraction, ok)
		l, err := Load(s.root)
		load.take(l, err == nil)
		feed(cpu.value, load.value)
		switch gone := cpu.missing > maxMissing; {
		case gone && !missing:
			log.Warn("the CPU usage of this process cannot be read: CPU rules are without effect", "event", "cpu_unknown")
			missing = true
		case !gone:
			missing = false
		}
	}
}

// held is a reading that outlives a few missing ones.
type held struct {
	value   float64
	missing int // in a row
}

func (h *held) take(v float64, ok bool) {
	if ok {
		h.value, h.missing = v, 0
		return
	}
	if h.missing++; h.missing > maxMissing {
		h.value = Unknown
	}
}
