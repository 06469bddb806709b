package httpapi

import (
	"context"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// TestFewerThanWantedIsNotToldAsAnEmptyShelf: the code and what to do are those of sold
// out, the words are true. The request_id stays bound to the quantity that it came with.
func TestFewerThanWantedIsNotToldAsAnEmptyShelf(t *testing.T) {
	for reason, want := range map[admission.Reason][2]string{
		admission.ReasonStockSoldOut: {admission.SoldOut.Row().English, admission.SoldOut.Row().Chinese},
		admission.ReasonStockTooFew:  {admission.TooFewEnglish, admission.TooFewChinese},
	} {
		for i, language := range []string{"en", "zh"} {
			b := newBed(t)
			b.deps.Place = func(context.Context, *admission.Request) admission.Decision {
				return admission.Decision{Outcome: admission.SoldOut, Stage: admission.StageStock, Reason: reason}
			}
			g := b.send(t, "POST", submitPath, goodBody, "Accept-Language: "+language)
			if g.HTTP != 200 || g.str("code") != "SECKILL_SOLD_OUT" || g.str("next_action") != "STOP" || g.str("message") != want[i] {
				t.Errorf("%s, %s: %d %s, want %q", reason, language, g.HTTP, g.Body, want[i])
			}
		}
	}
}
