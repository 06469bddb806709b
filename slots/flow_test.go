package slots

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/flow"
	"github.com/alibaba/sentinel-golang/core/stat"

	"github.com/sluice-io/sluice/app/admission"
)

const flowOfHundred = `"flow":[{"resource":"seckill.submit","threshold":100}],"hotspot":"none","system":"none"`

// TestFlowSlotSaysWhatSentinelWouldSay: whoever is refused would have been one too many,
// and nobody passes who is, however the requests and the time go, whoever else is refused
// later in the chain.
func TestFlowSlotSaysWhatSentinelWouldSay(t *testing.T) {
	b := newBed(t, with(flowOfHundred))
	b.calm()
	passes := func() int64 { return stat.GetResourceNode("seckill.submit").GetSum(base.MetricEventPass) }
	rnd := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 5000 {
		if rnd.IntN(50) == 0 {
			sentinelClock.moveOn(time.Duration(rnd.IntN(250)) * time.Millisecond)
		}
		req, before := b.request("7"), passes()
		if i%3 == 0 {
			req.Ticket = "forged"
		}
		switch d := b.gate.Enter(req); {
		case d.Stage == admission.StageFlow:
			if refused++; before < 100 {
				t.Fatalf("request %d was refused when %d had passed", i, before)
			}
		case passes() > 100:
			t.Fatalf("request %d passed when %d had", i, before)
		}
	}
	if refused < 1000 {
		t.Errorf("%d of 5000 were refused: the rule was hardly met", refused)
	}
}

// TestFlowSlotUnderRaces: no more pass than the threshold and those who were under way,
// which is Sentinel's own promise.
func TestFlowSlotUnderRaces(t *testing.T) {
	const askers = 16
	b := newBed(t, with(flowOfHundred))
	for range 20 {
		b.calm()
		var passed atomic.Int64
		var wg sync.WaitGroup
		// One comes alone: Sentinel begins a window in two steps and loses what is counted
		// between them, which is no matter of the slot's.
		b.passes()
		passed.Add(1)
		for g := range askers {
			user := fmt.Sprint(1000 + g)
			req := b.request(user)
			wg.Go(func() {
				for range 50 {
					again := *req
					if !b.gate.Enter(&again).Refused() {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := passed.Load(); n < 100 || n > 100+askers {
			t.Fatalf("%d passed a flow rule of 100", n)
		}
	}
}

// TestFlowSlotAsksEachTime where a rule counts otherwise.
func TestFlowSlotAsksEachTime(t *testing.T) {
	direct := flow.Rule{Resource: "seckill.submit", Threshold: 1000}
	warm, related, slow := direct, direct, direct
	warm.TokenCalculateStrategy = flow.WarmUp
	related.RelationStrategy = flow.AssociatedResource
	slow.StatIntervalInMs = 10_000
	for name, rule := range map[string]flow.Rule{"warm-up": warm, "related": related, "own window": slow} {
		if s := newFlowSlot([]flow.Rule{direct, rule}, admission.CallSubmit); s.threshold >= 0 {
			t.Errorf("%s: a threshold of %v is taken for sure", name, s.threshold)
		}
	}
	low := direct
	low.Threshold = 10
	if s := newFlowSlot([]flow.Rule{direct, low, {Resource: "seckill.status", Threshold: 1}}, admission.CallSubmit); s.threshold != 10 {
		t.Errorf("a threshold of %v, want the lowest of the resource", s.threshold)
	}
}
