package console

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestTop: a viewer may look; how many is bounded.
func TestTop(t *testing.T) {
	asked := 0
	h := New(Deps{
		Tokens: Tokens{sha256.Sum256([]byte("look")): RoleViewer}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Top: func(n int) any {
			asked = n
			return map[string]int{"n": n}
		},
	})
	for _, c := range []struct {
		query, token string
		status, n    int
	}{
		{"", "look", 200, 20}, {"?n=3", "look", 200, 3}, {"?n=100", "look", 200, 100},
		{"?n=101", "look", 400, 0}, {"?n=0", "look", 400, 0}, {"?n=x", "look", 400, 0}, {"", "", 401, 0},
	} {
		asked = 0
		req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/admin/v1/top"+c.query, nil)
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != c.status || asked != c.n {
			t.Errorf("%q: %d %s, asked for %d; want %d and %d", c.query, w.Code, strings.TrimSpace(w.Body.String()), asked, c.status, c.n)
		}
	}
}
