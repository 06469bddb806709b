package main

import (
	"net/http"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/httpapi"
	"github.com/sluice-io/sluice/app/httpapi/page"
)

// page is the activity page and its assets. What neither of them is gets the answer of
// every unknown path: it charges its source and has the one error shape.
func (s *service) page(deps httpapi.Deps) (httpapi.Page, error) {
	absent := httpapi.Absent(deps.Now, deps.Jitter)
	notFound := func(w http.ResponseWriter, r *http.Request) {
		req := &admission.Request{Now: deps.Now(), Mono: deps.Mono()}
		deps.Source(r, req)
		deps.ChargeSource(req)
		deps.Decided(admission.Calls, req, admission.Decision{Outcome: admission.NotFound, Stage: admission.StageGuard, Reason: admission.ReasonGuard})
		absent.ServeHTTP(w, r)
	}
	p, err := page.New(page.Config{
		State:             func(activityID string) string { return s.room.State(activityID).State },
		NotFound:          http.HandlerFunc(notFound),
		DevelopmentSignIn: deps.SignIn != nil,
	})
	if err != nil {
		return httpapi.Page{}, err
	}
	return httpapi.Page{Activity: p.Activity, Assets: p.Assets}, nil
}
