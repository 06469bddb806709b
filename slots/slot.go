package slots

import (
	"context"
	"fmt"

	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/logging"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit"
)

// visit is one request on its way through both chains: the one value that Sentinel
// carries for us. One goroutine owns it; it is never pooled, so nothing that outlives
// an entry can read another request through it.
type visit struct {
	gate      *Gate
	req       *admission.Request
	view      *view           // the rules in force when the request came, for both chains
	ctx       context.Context // of Reserve; its stages call the stores
	budgets   Budgets         // of Reserve
	policy    *policy
	scope     uint64 // the hash of activity and SKU, with which the keys of users and devices begin
	charges   [maxCharges]charge
	charged   int
	shadows   []charge // of shadow limits; nil for almost every request
	userKey   uint64   // of the user, and of the device, on this SKU: set by the user stage, for all that follow
	deviceKey uint64
	userRate  limit.Rate
	counted   bool // among the top
	passed    bool // the first chain
	decision  admission.Decision
	inside    inside // the entry that it is in, if any
	args      [argCount]any
}

// Positions of Sentinel's parameters. All are strings, whatever a rule's author thinks
// an id is: the pinned version compares the Go type as well as the value.
const (
	argSKU = iota
	argUser
	argDevice
	argSource
	argActivity
	argVisit // ours, behind those that rules can name
	argCount
)

// stage is one decision of ours.
type stage struct {
	name   admission.Stage
	shadow bool
	block  []base.BlockErrorOption
	check  func(*Gate, *visit) admission.Decision
}

// stages makes stages that follow one another a Sentinel rule-check slot.
type stages struct {
	order uint32 // of the first
	list  []stage
	gate  *Gate
}

// Order places the slot in its chain.
func (s *stages) Order() uint32 { return s.order }

// Check runs the stages until one refuses. A panic refuses, in the name of its stage:
// Sentinel itself would let the request pass. The block goes through the context's own
// result: a shared one is reset by the pool of another request and passes from then on.
func (s *stages) Check(ctx *base.EntryContext) (result *base.TokenResult) {
	v, at := visitOf(ctx), 0
	defer func() {
		if p := recover(); p != nil {
			result = refuse(ctx, v, s.list[at].block, panicked(s.list[at].name, p))
		}
	}()
	for ; at < len(s.list); at++ {
		stage := &s.list[at]
		d := stage.check(s.gate, v)
		if !d.Refused() {
			continue
		}
		if !stage.shadow {
			return refuse(ctx, v, stage.block, d)
		}
		s.gate.metrics.shadow(stage.name)
	}
	return nil
}

// refuse keeps the decision and blocks through the context's own result.
func refuse(ctx *base.EntryContext, v *visit, block []base.BlockErrorOption, d admission.Decision) *base.TokenResult {
	if v != nil {
		v.decision = d
	}
	ctx.RuleCheckResult.ResetToBlockedWith(block...)
	return ctx.RuleCheckResult
}

// blocked are the options of a block, made once: each is a closure.
func blocked(t base.BlockType, stage admission.Stage) []base.BlockErrorOption {
	return []base.BlockErrorOption{base.WithBlockType(t), base.WithBlockMsg(stage.String())}
}

func panicked(stage admission.Stage, p any) admission.Decision {
	return admission.Decision{
		Outcome: admission.DependencyUnavailable, Stage: stage, Reason: admission.ReasonPanic,
		Cause: fmt.Errorf("stage %s panicked: %v", stage, p),
	}
}

func visitOf(ctx *base.EntryContext) *visit {
	if len(ctx.Input.Args) != argCount {
		return nil // the stage's first look at it panics, and that refuses
	}
	v, _ := ctx.Input.Args[argVisit].(*visit)
	return v
}

// inside is an entry that passed and has not been left.
type inside struct {
	chain *chain
	ctx   *base.EntryContext
	entry *base.SentinelEntry // of a chain with a breaker, else nil
}

// enter sends a visit through a chain. passed is false when something refused; the
// decision is then in the visit and the entry is over. It stands in for Sentinel's
// api.Entry, which allocates a resource and options per call and takes a chain that
// broke off for a pass.
//
// A breaker registers with Sentinel's entry while the chain runs. A chain without one
// needs none: what an entry's exit does is in leave.
func enter(c *chain, v *visit) (passed bool) {
	ctx := c.GetPooledContext()
	ctx.Resource = c.resource
	v.args[argVisit] = v
	ctx.Input.Args = v.args[:]
	var entry *base.SentinelEntry
	if c.breaks {
		entry = base.NewSentinelEntry(ctx, c.resource, c.SlotChain)
		ctx.SetEntry(entry)
	}
	result := c.Entry(ctx)
	switch {
	case result == nil:
		// A stock slot panicked. Nobody can say which statistics it had begun, so this
		// context is neither exited nor pooled again: it is left to the collector.
		v.decision = panicked(admission.StageSystem, ctx.Err())
		return false
	case result.IsBlocked():
		if !v.decision.Refused() {
			v.decision = sentinelDecision(result.BlockError())
		}
		if entry != nil {
			entry.Exit()
		} else {
			c.RefurbishContext(ctx) // all that Exit does for a blocked entry
		}
		return false
	}
	v.inside = inside{c, ctx, entry}
	return true
}

// leave exits what the visit entered, with the error that breakers count, or nil. It does so
// once: the context is soon another request's.
func (v *visit) leave(err error) {
	in := v.inside
	v.inside = inside{}
	switch {
	case in.ctx == nil:
		return
	case err != nil:
		in.ctx.SetError(err)
	}
	if in.entry != nil {
		in.entry.Exit()
		return
	}
	defer func() {
		if p := recover(); p != nil { // the statistics are off by one; the context goes to the collector
			logging.Error(fmt.Errorf("panic: %v", p), "leaving "+in.chain.resource.Name())
		}
	}()
	for _, s := range in.chain.stats {
		s.OnCompleted(in.ctx)
	}
	in.chain.RefurbishContext(in.ctx)
}
