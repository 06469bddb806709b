package main

import (
	"net/http"
	"os"
	"testing"

	"github.com/sluice-io/sluice/app/keys"
)

// TestDevelopmentSignIn: a session is made with the key in force, whatever lies in the file
// meanwhile; a new key signs and verifies from the moment it is taken; and what the settings
// demand of a session is in it.
func TestDevelopmentSignIn(t *testing.T) {
	s := openSale(t, map[string]string{"session.issuer": "the shop", "session.audience": "the sale"})
	signIn := func() string {
		t.Helper()
		a := s.do(t.Context(), http.MethodPost, "/v1/session", `{"user_id":"70000001"}`, nil)
		if a.HTTP != http.StatusOK {
			t.Fatalf("sign-in: %d %s", a.HTTP, a.Raw)
		}
		// An order of nobody: whoever is known is told that there is none.
		if got := s.do(t.Context(), http.MethodGet, "/v1/orders/1", "", map[string]string{"Authorization": "Bearer " + a.Session}); got.HTTP != http.StatusNotFound {
			t.Fatalf("the session is not believed: %d %s", got.HTTP, got.Raw)
		}
		return a.Session
	}
	signIn()

	file := s.s.keyring.sessionFile
	if err := os.WriteFile(file, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := signIn()

	key, err := keys.NewOct("next")
	if err != nil {
		t.Fatal(err)
	}
	set, err := keys.NewSet(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	s.until("the new key is in force", func() bool { return s.s.signer.Load().ID() == "next" })
	signIn()
	if a := s.do(t.Context(), http.MethodGet, "/v1/orders/1", "", map[string]string{"Authorization": "Bearer " + old}); a.HTTP != http.StatusUnauthorized {
		t.Errorf("a session of the old key: %d", a.HTTP)
	}
}
