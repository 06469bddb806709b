package soldout

import (
	"strconv"
	"sync"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// TestLedgerGrowsAndKeepsTheLast word on each user.
func TestLedgerGrowsAndKeepsTheLast(t *testing.T) {
	const users = 5000
	l := newLedger(1)
	for i := range users {
		l.take(admission.LogEvent{UserID: strconv.Itoa(i), ReservationID: "r-" + strconv.Itoa(i)})
	}
	for i := range users / 2 {
		l.take(admission.LogEvent{UserID: strconv.Itoa(2 * i), FreesUser: true, Attempt: 1})
	}
	for i := range users {
		e := l.find(strconv.Itoa(i))
		if e == nil || e.holds != (i%2 == 1) || e.holds && e.holder.ReservationID != "r-"+strconv.Itoa(i) || !e.holds && e.holder.Attempt != 1 {
			t.Fatalf("user %d: %+v", i, e)
		}
	}
	if l.used != users || l.find("nobody") != nil || l.find("") != nil {
		t.Errorf("%d users, want %d and no stranger", l.used, users)
	}
}

// TestLedgerReadersSeeAllBeforeTheCursor: whoever sees how far the log has been followed
// sees everybody up to there, while the table grows under them.
func TestLedgerReadersSeeAllBeforeTheCursor(t *testing.T) {
	const users = 20_000
	l := newLedger(1)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for n := int64(0); n < users; {
				n = l.cursor.Load()
				for _, i := range []int64{n - 1, n / 2, 0} {
					if i >= 0 && i < n && l.find(strconv.FormatInt(i, 10)) == nil {
						t.Errorf("the log was followed to %d and user %d is missing", n, i)
						return
					}
				}
			}
		})
	}
	for i := range int64(users) {
		l.take(admission.LogEvent{UserID: strconv.FormatInt(i, 10)})
		l.cursor.Store(i + 1)
	}
	readers.Wait()
}
