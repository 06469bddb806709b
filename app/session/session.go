// Package session tells who is asking: it verifies session JWTs (RFC 7519) against a key set in which each
// key pins one algorithm, and remembers those it has verified.
//
// It promises:
//   - the algorithm is the key's, never the token's: "none", and a public key used as an HMAC secret, are
//     refused whatever a header says;
//   - a user id is a canonical decimal, so one user is one string everywhere behind this package;
//   - a remembered session costs no allocation and no signature check, and is forgotten at its end or as
//     soon as the keys change;
//   - memory is bounded by Config.Remember tokens of at most MaxBytes.
//
// Everything it needs is in memory. A key file that breaks leaves the last good keys in force; a token of
// an unknown key is refused.
package session

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
)

const (
	// MaxBytes bounds a session token.
	MaxBytes = 2048
	// MaxClaimLen bounds region and tier, in bytes: as long as the name of a lane.
	MaxClaimLen = 32
	// DefaultRemember is how many sessions are remembered: some 30 MB of ordinary tokens.
	DefaultRemember = 1 << 16
	// DefaultLeeway is how far the clocks of issuer and verifier may differ.
	DefaultLeeway = 2 * time.Second
)

// Identity is what a verified session says.
type Identity struct {
	UserID    string // sub: canonical decimal, 1..2^63-1
	Region    string // claim "region", checked and not used, as rooms have one lane: "" or 1..32 of [A-Za-z0-9._:-]
	Tier      string // claim "tier", likewise
	ExpiresAt time.Time
}

// Config is what a Verifier demands beyond a signature, sub and exp. The zero Config has the defaults.
type Config struct {
	Issuer   string        // the iss a token must have; "" is not checked
	Audience string        // one of the aud a token must have; "" is not checked
	Leeway   time.Duration // clock difference allowed for exp and nbf; 0 means DefaultLeeway, at most 1 min
	Remember int           // sessions, rounded up to a multiple of 64; 0 means DefaultRemember, at most 1<<22
}

func (c Config) withDefaults() Config {
	if c.Leeway == 0 {
		c.Leeway = DefaultLeeway
	}
	if c.Remember == 0 {
		c.Remember = DefaultRemember
	}
	return c
}

func (c Config) validate() error {
	if c.Leeway < 0 || c.Leeway > time.Minute {
		return fmt.Errorf("session: leeway %v is outside 0..1m", c.Leeway)
	}
	if c.Remember < 0 || c.Remember > 1<<22 {
		return fmt.Errorf("session: remember %d is outside 1..%d", c.Remember, 1<<22)
	}
	return nil
}

// A Verifier checks sessions. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	parser *jwt.Parser
	ring   atomic.Pointer[ring]
	memory *memory
}

// ring is one generation of keys, immutable; its address is the generation's name.
type ring struct {
	only   *pinned // the one key of a set of one: its tokens need no kid
	byName map[string]*pinned
}

type pinned struct {
	alg string
	key any
}

// NewVerifier takes the keys that sessions may be signed with.
func NewVerifier(set keys.Set, cfg Config) (*Verifier, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	v := &Verifier{
		cfg: cfg,
		// Claims are validated by us, after the signature, with the caller's clock.
		parser: jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()),
		memory: newMemory(cfg.Remember),
	}
	if err := v.Swap(set); err != nil {
		return nil, err
	}
	return v, nil
}

// Swap takes new keys and forgets every session verified with the old ones: a key is removed because what
// it signed is no longer to be believed. An empty set is refused and changes nothing.
func (v *Verifier) Swap(set keys.Set) error {
	if set.Len() == 0 {
		return errors.New("session: empty key set")
	}
	r := &ring{byName: make(map[string]*pinned, set.Len())}
	for _, k := range set.Keys() {
		r.byName[k.ID()] = &pinned{alg: string(k.Alg()), key: k.VerifyingKey()}
	}
	if set.Len() == 1 {
		r.only = r.byName[set.First().ID()]
	}
	v.ring.Store(r)
	return nil
}

// Verify tells who the bearer of a token is at the moment now.
func (v *Verifier) Verify(raw string, now time.Time) (Identity, Reason) {
	switch {
	case raw == "":
		return Identity{}, Missing
	case len(raw) > MaxBytes:
		return Identity{}, TooLong
	}
	r := v.ring.Load()
	if id, ok := v.memory.recall(raw, r, now); ok {
		return id, OK
	}
	id, reason := v.check(raw, r, now)
	if reason == OK {
		v.memory.remember(raw, r, id, id.ExpiresAt.Add(v.cfg.Leeway))
	}
	return id, reason
}

// check does the whole work for a token that is not remembered.
func (v *Verifier) check(raw string, r *ring, now time.Time) (Identity, Reason) {
	if strings.ContainsAny(raw, "\r\n") { // the decoder would skip them
		return Identity{}, Format
	}
	claims := jwt.MapClaims{} // a map, because struct fields would also match "Sub" and "EXP"
	if _, err := v.parser.ParseWithClaims(raw, claims, r.keyFor); err != nil {
		return Identity{}, reasonOf(err)
	}
	if err := v.validator(now).Validate(claims); err != nil {
		return Identity{}, reasonOf(err)
	}
	return identity(claims)
}

func (v *Verifier) validator(now time.Time) *jwt.Validator {
	options := []jwt.ParserOption{
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(v.cfg.Leeway),
		jwt.WithTimeFunc(func() time.Time { return now }),
		jwt.WithIssuer(v.cfg.Issuer),
	}
	if v.cfg.Audience != "" {
		options = append(options, jwt.WithAudience(v.cfg.Audience))
	}
	return jwt.NewValidator(options...)
}

var (
	errUnknownKey = errors.New("unknown key")
	errAlgorithm  = errors.New("not the key's algorithm")
	errCritical   = errors.New("critical header extension")
)

// keyFor finds a token's key, and refuses the token if it does not use that key's algorithm.
func (r *ring) keyFor(t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		return nil, errCritical // RFC 7515 section 4.1.11: what is not understood must be refused
	}
	k := r.only
	if kid, given := t.Header["kid"]; given {
		name, _ := kid.(string)
		k = r.byName[name]
	}
	if k == nil {
		return nil, errUnknownKey
	}
	if t.Method.Alg() != k.alg {
		return nil, errAlgorithm
	}
	return k.key, nil
}

func identity(claims jwt.MapClaims) (Identity, Reason) {
	sub, _ := claims["sub"].(string)
	if !admission.ValidDecimal(sub) {
		return Identity{}, Subject
	}
	region, regionOK := laneClaim(claims["region"])
	tier, tierOK := laneClaim(claims["tier"])
	exp, err := claims.GetExpirationTime()
	if !regionOK || !tierOK || err != nil {
		return Identity{}, Claims
	}
	return Identity{UserID: sub, Region: region, Tier: tier, ExpiresAt: exp.Time}, OK
}

// laneClaim reads an optional claim. One that cannot be a lane refuses the session instead of moving its
// user to another lane unseen.
func laneClaim(claim any) (string, bool) {
	if claim == nil {
		return "", true
	}
	s, _ := claim.(string)
	if len(s) == 0 || len(s) > MaxClaimLen {
		return "", false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return "", false
		}
	}
	return s, true
}
