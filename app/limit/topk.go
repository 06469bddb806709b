package limit

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// maxTop bounds the memory of a sketch.
const maxTop = 1 << 16

// TopK finds the most frequent of any number of keys in bounded memory: the space-saving
// sketch (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
// Elements in Data Streams", 2005). With m counters over N counted units it holds every
// key that came more than N/m times, and no count is more than N/m too high or at all too
// low.
//
// It feeds a console and decides nothing. Therefore it never makes a request wait: a unit
// that meets the lock taken is skipped and counted in Missed.
type TopK[K comparable] struct {
	capacity int
	missed   atomic.Int64

	mu    sync.Mutex
	place map[K]int    // guarded by mu; index in heap
	heap  []Counted[K] // guarded by mu; least count first
}

// Counted is a key with its estimated count: the true one is in [Count - Over, Count].
type Counted[K comparable] struct {
	Key   K
	Count int64
	Over  int64
}

// NewTopK returns a sketch of capacity counters (1..65,536). Take ten times as many as
// the keys to be shown.
func NewTopK[K comparable](capacity int) (*TopK[K], error) {
	if capacity < 1 || capacity > maxTop {
		return nil, &FieldError{"capacity", fmt.Sprintf("%d is not in 1..%d", capacity, maxTop)}
	}
	return &TopK[K]{
		capacity: capacity,
		place:    make(map[K]int, capacity),
		heap:     make([]Counted[K], 0, capacity),
	}, nil
}

// Add counts n units of a key. A new key takes the counter of the least frequent one and
// inherits its count as possible error. n <= 0 is ignored.
func (t *TopK[K]) Add(key K, n int64) {
	if n <= 0 {
		return
	}
	if !t.mu.TryLock() {
		t.missed.Add(n)
		return
	}
	defer t.mu.Unlock()
	i, ok := t.place[key]
	switch {
	case ok:
		t.heap[i].Count += n
	case len(t.heap) < t.capacity:
		i = len(t.heap)
		t.heap = append(t.heap, Counted[K]{Key: key, Count: n})
		t.place[key] = i
		t.up(i)
		return
	default:
		i = 0
		least := &t.heap[0]
		delete(t.place, least.Key)
		*least = Counted[K]{Key: key, Count: least.Count + n, Over: least.Count}
		t.place[key] = 0
	}
	t.down(i)
}

// Top returns the n most frequent keys, most frequent first.
func (t *TopK[K]) Top(n int) []Counted[K] {
	t.mu.Lock()
	all := slices.Clone(t.heap)
	t.mu.Unlock()
	slices.SortStableFunc(all, func(a, b Counted[K]) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(max(n, 0), len(all))]
}

// Halve halves every count. Called at a steady pace it makes the sketch follow the recent
// past: each call is one half-life.
func (t *TopK[K]) Halve() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.heap { // order is kept, so the heap stays one
		t.heap[i].Count -= t.heap[i].Count / 2
		t.heap[i].Over -= t.heap[i].Over / 2
	}
}

// Missed returns how many units were not counted because the sketch was busy.
func (t *TopK[K]) Missed() int64 { return t.missed.Load() }

func (t *TopK[K]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].Count <= t.heap[i].Count {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *TopK[K]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.heap); child++ {
			if t.heap[child].Count < t.heap[least].Count {
				least = child
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *TopK[K]) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.place[t.heap[i].Key], t.place[t.heap[j].Key] = i, j
}
