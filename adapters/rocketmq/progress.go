package rocketmq

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	// maxMoments bounds the moments that are asked about at once: one a restore.
	maxMoments = 64
	// dispatch is how long a broker may take to put an acknowledged message into its
	// queue: it does so after the acknowledgement, usually within milliseconds.
	dispatch = time.Second
)

// moments remembers how far Consumed has come for each moment asked about.
type moments struct {
	mu  sync.Mutex
	all map[int64]*moment // by Unix nanoseconds; guarded by mu
}

type moment struct {
	asked   time.Time         // when first asked
	targets map[queueID]int64 // ends of the topic's queues, dispatch after that; nil before
	retries map[queueID]int64 // ends of the retry topic's queues, as last seen
	quiet   time.Time         // since when these have not moved and all is acknowledged; zero: not so
}

// Consumed implements admission.Queue. Ask it until it is true.
//
// A second after the first question about a moment the end of every queue is noted:
// whatever was acknowledged before the moment lies before these ends, whoever's clock
// made it. The group has consumed it when its stored offsets (all before them is acknowledged) have reached
// the ends, and no message of it is on its way round by the retry topic: such a message
// spends its 1 s of delay in neither topic, so the retry topic must be acknowledged to
// its end and must not have grown for Settle. Errs towards false: messages sent later
// that fail hold it up too.
func (q *Queue) Consumed(ctx context.Context, at time.Time) (bool, error) {
	q.moments.mu.Lock() // held over the requests: one restore asks at a time
	defer q.moments.mu.Unlock()
	m := q.moments.find(at)
	if m.targets == nil {
		if time.Since(m.asked) < dispatch {
			return false, nil
		}
		ends, err := q.ends(ctx, q.config.Topic)
		if err != nil {
			return false, err
		}
		m.targets = ends
	}
	for id, end := range m.targets {
		if end == 0 {
			continue
		}
		done, err := q.wire.consumerOffset(ctx, q.config.Topic, id)
		if err != nil || done < end {
			return false, err
		}
	}
	ends, acknowledged, err := q.retries(ctx)
	if err != nil {
		return false, err
	}
	now := time.Now()
	if !acknowledged || !maps.Equal(ends, m.retries) || m.quiet.IsZero() {
		m.retries, m.quiet = ends, time.Time{}
		if acknowledged {
			m.quiet = now
		}
		return false, nil
	}
	if now.Sub(m.quiet) < q.config.Settle {
		return false, nil
	}
	delete(q.moments.all, at.UnixNano())
	return true, nil
}

// find returns what is known of a moment. mu is held.
func (ms *moments) find(at time.Time) *moment {
	key := at.UnixNano()
	if m := ms.all[key]; m != nil {
		return m
	}
	if ms.all == nil {
		ms.all = make(map[int64]*moment)
	}
	for old := range ms.all {
		if len(ms.all) < maxMoments {
			break
		}
		delete(ms.all, old) // it begins anew when asked about again
	}
	m := &moment{asked: time.Now()}
	ms.all[key] = m
	return m
}

func (q *Queue) ends(ctx context.Context, topic string) (map[queueID]int64, error) {
	r, err := q.wire.route(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends := make(map[queueID]int64, len(r.queues))
	for _, id := range r.queues {
		if ends[id], err = q.wire.maxOffset(ctx, topic, id); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// retries returns the ends of the retry topic and whether all before them is acknowledged.
func (q *Queue) retries(ctx context.Context) (ends map[queueID]int64, acknowledged bool, err error) {
	topic := q.config.retryTopic()
	ends, err = q.ends(ctx, topic)
	if errors.Is(err, admission.ErrNotFound) {
		return nil, true, nil // the first failure makes the topic
	}
	if err != nil {
		return nil, false, err
	}
	for id, end := range ends {
		done, err := q.wire.consumerOffset(ctx, topic, id)
		if err != nil {
			return nil, false, err
		}
		if done < end {
			return ends, false, nil
		}
	}
	return ends, true, nil
}

// Lag is how many messages the group has not acknowledged, retries included but for
// those in their 1 s of delay.
func (q *Queue) Lag(ctx context.Context) (int64, error) {
	var lag int64
	for _, topic := range [...]string{q.config.Topic, q.config.retryTopic()} {
		ends, err := q.ends(ctx, topic)
		if errors.Is(err, admission.ErrNotFound) && topic != q.config.Topic {
			continue
		}
		if err != nil {
			return 0, err
		}
		for id, end := range ends {
			done, err := q.wire.consumerOffset(ctx, topic, id)
			if err != nil {
				return 0, err
			}
			lag += max(end-done, 0)
		}
	}
	return lag, nil
}
