package httpapi

import (
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// TestAMissingTicketIsNamed: who forgot the header is told which; who has a bad one is told nothing.
func TestAMissingTicketIsNamed(t *testing.T) {
	d := admission.Decision{Outcome: admission.TokenInvalid}
	if a := submitAnswer(&admission.Request{}, d, 0); a.Field != "X-Seckill-Ticket" || a.Detail != "X-Seckill-Ticket: is missing" {
		t.Errorf("no ticket: %+v", a)
	}
	if a := submitAnswer(&admission.Request{Ticket: "a.b.c"}, d, 0); a.Field != "" || a.Detail != "" {
		t.Errorf("a forged ticket: %+v", a)
	}
}
