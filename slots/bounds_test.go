package slots

import (
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// TestNoAcceptedLimitCloses: a limit at its bounds is not closed, nor are the parts and
// multiples of it that prefixes and unparsable addresses have. Only 0 closes.
func TestNoAcceptedLimitCloses(t *testing.T) {
	for _, limit := range []string{
		`{"rate_per_s":1e9,"burst":900719925474}`, `{"rate_per_s":600000001,"burst":900719925474}`, `{"rate_per_s":1e9,"burst":1}`,
		`{"rate_per_s":2.2e-10,"burst":1}`, `{"rate_per_s":196,"burst":900719925474}`,
	} {
		b := newBed(t, quiet(`"limits":{"source":`+limit+`,"user":`+limit+`,"device":`+limit+`,"status":`+limit+`}`))
		b.want(b.gate.Enter(b.request("7")), admission.Pass, admission.StageNone)
		hidden := b.request("8")
		hidden.SourceUnparsable = true
		b.want(b.gate.Enter(hidden), admission.Pass, admission.StageNone)
		b.want(b.gate.Call(admission.CallStatus, b.request("9")), admission.Pass, admission.StageNone)
	}
	b := newBed(t, quiet(`"limits":{"source":{"rate_per_s":1,"burst":0}}`))
	b.want(b.gate.Enter(b.request("7")), admission.RateLimited, admission.StageSource)
}
