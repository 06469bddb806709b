package slots

import (
	"github.com/alibaba/sentinel-golang/core/base"
	"github.com/alibaba/sentinel-golang/core/hotspot"

	"github.com/sluice-io/sluice/app/admission"
)

// hotParams is Sentinel's hot-param slot with the arguments that its rules name: strings
// all, for the pinned version compares the Go type as well as the value, and none of them
// missing, for it lets a request without the argument pass.
type hotParams struct {
	needs [argVisit]bool // of the rules on this resource
}

// Order is that of Sentinel's slot.
func (*hotParams) Order() uint32 { return hotspot.RuleCheckSlotOrder }

// Check fills the arguments in and asks Sentinel. Only what a rule needs is boxed.
func (h *hotParams) Check(ctx *base.EntryContext) *base.TokenResult {
	v := visitOf(ctx)
	for arg, needed := range h.needs {
		if !needed || v.args[arg] != nil {
			continue
		}
		s := v.argument(arg)
		if s == "" {
			return refuse(ctx, v, blocked(base.BlockTypeHotSpotParamFlow, admission.StageSKU), admission.Decision{
				Outcome: admission.DependencyUnavailable, Stage: admission.StageSKU, Reason: admission.ReasonMissingParameter,
			})
		}
		v.args[arg] = s
	}
	return hotspot.DefaultSlot.Check(ctx)
}

// argument is a parameter of the request, "" when it has none. SKU and activity of a
// submit are boxed once, in its policy.
func (v *visit) argument(arg int) string {
	switch arg {
	case argUser:
		return v.req.UserID
	case argDevice:
		return v.req.DeviceHash
	case argSource:
		return v.view.sourceName(v.req.SourceKey)
	case argActivity:
		if v.req.Activity != nil {
			return v.req.Activity.ID
		}
	}
	return ""
}

// sourceName spells a source for Sentinel: the address where a rule names it, for that is
// what the rule's items are matched by, else its hash.
func (w *view) sourceName(key uint64) string {
	if name, ok := w.sourceNames[key]; ok {
		return name
	}
	return sourceHash(key)
}
