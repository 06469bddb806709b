package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Role is what a token allows.
type Role uint8

// The roles; more is greater.
const (
	RoleNone Role = iota
	RoleViewer
	RoleOperator
)

// Tokens are the hashes of admin tokens.
type Tokens map[[sha256.Size]byte]Role

// maxTokens bounds a token file.
const maxTokens = 1000

var roles = map[string]Role{"operator": RoleOperator, "viewer": RoleViewer}

// ParseTokens reads lines `operator sha256:<hex>` or `viewer sha256:<hex>`; empty lines
// and lines that begin with # are skipped. An error names the line, never the hash.
func ParseTokens(text string) (Tokens, error) {
	t, lines := Tokens{}, map[[sha256.Size]byte]int{}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		role, known := roles[words[0]]
		if !known {
			return nil, fmt.Errorf("line %d: begins with neither operator nor viewer", i+1)
		}
		hash, ok := tokenHash(words[1:])
		switch first, twice := lines[hash]; {
		case !ok:
			return nil, fmt.Errorf("line %d: want `operator sha256:<64 hex digits>` or `viewer sha256:…`", i+1)
		case hash == sha256.Sum256(nil):
			return nil, fmt.Errorf("line %d: is the hash of nothing", i+1)
		case twice:
			return nil, fmt.Errorf("line %d: is the token of line %d again", i+1, first)
		case len(t) == maxTokens:
			return nil, fmt.Errorf("line %d: more than %d tokens", i+1, maxTokens)
		}
		t[hash], lines[hash] = role, i+1
	}
	if len(t) == 0 {
		return nil, errors.New("no token")
	}
	return t, nil
}

func tokenHash(words []string) (hash [sha256.Size]byte, ok bool) {
	if len(words) != 1 || !strings.HasPrefix(words[0], "sha256:") {
		return hash, false
	}
	sum, err := hex.DecodeString(words[0][len("sha256:"):])
	if err != nil || len(sum) != sha256.Size {
		return hash, false
	}
	return [sha256.Size]byte(sum), true
}

// bearer is the token of an Authorization header, "" when there is none.
func bearer(h http.Header) string {
	const scheme = "Bearer "
	v := h["Authorization"]
	if len(v) != 1 || len(v[0]) <= len(scheme) || !strings.EqualFold(v[0][:len(scheme)], scheme) {
		return ""
	}
	return v[0][len(scheme):]
}

func (t Tokens) role(bearer string) Role {
	if bearer == "" {
		return RoleNone
	}
	sum := sha256.Sum256([]byte(bearer))
	role := RoleNone
	for have, r := range t { // every one is compared, so that time tells nothing
		if subtle.ConstantTimeCompare(have[:], sum[:]) == 1 {
			role = r
		}
	}
	return role
}
