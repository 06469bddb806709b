package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-io/sluice/app/config"
)

// said is a log that two goroutines may touch.
type said struct {
	mu sync.Mutex
	strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(p)
}

// TestASecondStartIsAnotherSale: the demonstration that begins anew under the same id has a
// draw whose secret the first one has not shown, and the log begins without a warning.
func TestASecondStartIsAnotherSale(t *testing.T) {
	flags := map[string]string{"data.dir": t.TempDir(), "listen.public": "127.0.0.1:0", "listen.internal": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "demo.opens_in": "2s"}
	var commitments []string
	for range 2 {
		c, err := config.Load(config.Sources{Env: func(string) (string, bool) { return "", false }, Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		out, in := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		done, log := make(chan error, 1), &said{}
		var s *service
		go func() {
			err := serveWith(ctx, c, in, log, func(made *service) {
				s = made
				if left, err := s.stores.orders.Activities(ctx); err != nil || len(left) > 0 { // before any loop runs
					t.Errorf("the waves would find %+v without a stock (%v)", left, err)
				}
			})
			in.CloseWithError(io.EOF)
			done <- err
		}()
		var line readyLine
		if err := json.NewDecoder(out).Decode(&line); err != nil {
			t.Errorf("no ready line: %v", err)
		} else {
			commitments = append(commitments, s.room.Commitment(s.directory.ByID(demoActivity)))
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), `"level":"WARN"`) {
			t.Errorf("a start warns:\n%s", log.String())
		}
	}
	if len(commitments) == 2 && (commitments[0] == "" || commitments[0] == commitments[1]) {
		t.Errorf("commitments %q: the first sale has revealed the second one's secret", commitments)
	}
}
