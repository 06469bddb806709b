package session

import (
	"strconv"
	"testing"
	"time"
)

func TestMemoryIsBoundedAndDropsTheOldest(t *testing.T) {
	m, keys := newMemory(128), &ring{}
	start := time.Unix(0, 0)
	for i := range 10_000 {
		m.remember(strconv.Itoa(i), keys, Identity{UserID: strconv.Itoa(i)}, start.Add(time.Hour))
	}
	kept := 0
	for i := range m.shards {
		s := &m.shards[i]
		if len(s.slots) > 2 || len(s.index) != len(s.slots) {
			t.Fatalf("shard %d: %d slots, %d indexed", i, len(s.slots), len(s.index))
		}
		kept += len(s.slots)
	}
	if kept != 128 {
		t.Errorf("%d kept", kept)
	}
	if id, ok := m.recall("9999", keys, start); !ok || id.UserID != "9999" {
		t.Errorf("the newest is forgotten: %+v", id)
	}
	if _, ok := m.recall("0", keys, start); ok {
		t.Error("the oldest is kept")
	}
}

// Two tokens of one hash: the second takes the place, the first is verified again, neither is mistaken.
func TestACollisionIsNeverAnotherUser(t *testing.T) {
	m, keys := newMemory(64), &ring{}
	until := time.Unix(60, 0)
	m.remember("token", keys, Identity{UserID: "1"}, until)
	for i := range m.shards {
		for j := range m.shards[i].slots {
			m.shards[i].slots[j].token = "another token of the same hash"
		}
	}
	if id, ok := m.recall("token", keys, time.Unix(0, 0)); ok {
		t.Errorf("mistaken for %+v", id)
	}
}
