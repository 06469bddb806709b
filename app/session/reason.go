package session

import (
	"errors"

	"github.com/golang-jwt/jwt/v5"
)

// Reason is why a session was or was not accepted: a closed set, and so a metric label. All but OK answer
// UNAUTHENTICATED: a caller is told to sign in again, not what to forge better.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	OK         Reason = iota
	Missing           // no token at all
	TooLong           // over 2,048 bytes
	Format            // not a compact JWS in canonical base64url with JSON in it, or a critical extension
	UnknownKey        // no key of that name; no name, and more than one key
	Algorithm         // not the algorithm of its key
	Signature         //
	Expired           // after exp
	NotYet            // before nbf
	Issuer            //
	Audience          //
	Claims            // exp missing, or a claim of the wrong type or out of bounds
	Subject           // sub is not a user id

	Reasons // how many there are
)

var reasonNames = [Reasons]string{
	OK: "ok", Missing: "missing", TooLong: "too_long", Format: "format", UnknownKey: "unknown_key",
	Algorithm: "algorithm", Signature: "signature", Expired: "expired", NotYet: "not_yet",
	Issuer: "issuer", Audience: "audience", Claims: "claims", Subject: "subject",
}

// String is the reason as a metric label.
func (r Reason) String() string {
	if r >= Reasons {
		return "format"
	}
	return reasonNames[r]
}

// reasonOf reads golang-jwt's answer. The first row that matches wins; an error of no row is Format.
func reasonOf(err error) Reason {
	for _, row := range [...]struct {
		is     error
		reason Reason
	}{
		{errUnknownKey, UnknownKey},
		{errAlgorithm, Algorithm},
		{errCritical, Format},
		{jwt.ErrTokenMalformed, Format},
		{jwt.ErrTokenSignatureInvalid, Signature},
		{jwt.ErrTokenUnverifiable, Algorithm}, // an alg that golang-jwt does not know
		{jwt.ErrTokenExpired, Expired},
		{jwt.ErrTokenNotValidYet, NotYet},
		{jwt.ErrTokenInvalidIssuer, Issuer},
		{jwt.ErrTokenInvalidAudience, Audience},
		{jwt.ErrTokenRequiredClaimMissing, Claims},
		{jwt.ErrInvalidType, Claims},
	} {
		if errors.Is(err, row.is) {
			return row.reason
		}
	}
	return Format
}
