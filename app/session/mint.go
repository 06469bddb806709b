package session

import (
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
)

// MintClaims is what a session of ours says. All but UserID may be empty.
type MintClaims struct {
	UserID   string
	Region   string
	Tier     string
	Issuer   string
	Audience string
}

// Mint signs a session for the development sign-in and the demonstration, valid from now for ttl (whole
// seconds, at least one). An error tells that the key cannot sign or names the claim that a Verifier would
// refuse.
func Mint(key keys.Key, c MintClaims, ttl time.Duration, now time.Time) (string, error) {
	signing, ok := key.SigningKey()
	if !ok {
		return "", fmt.Errorf("mint session: %v cannot sign", key)
	}
	if !admission.ValidDecimal(c.UserID) {
		return "", fmt.Errorf("mint session: user id %.32q is not a decimal in 1..2^63-1", c.UserID)
	}
	if ttl < time.Second {
		return "", fmt.Errorf("mint session: ttl %v is under a second", ttl)
	}
	claims := jwt.MapClaims{"sub": c.UserID, "nbf": now.Unix(), "exp": now.Add(ttl).Unix()}
	for name, value := range map[string]string{"region": c.Region, "tier": c.Tier, "iss": c.Issuer, "aud": c.Audience} {
		if value == "" {
			continue
		}
		if _, ok := laneClaim(value); !ok && (name == "region" || name == "tier") {
			return "", fmt.Errorf("mint session: %s %.40q is not 1..%d of [A-Za-z0-9._:-]", name, value, MaxClaimLen)
		}
		claims[name] = value
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod(string(key.Alg())), claims)
	token.Header["kid"] = key.ID()
	raw, err := token.SignedString(signing)
	if err != nil {
		return "", fmt.Errorf("mint session: %w", err)
	}
	return raw, nil
}
