package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/limit/source"
	"github.com/sluice-io/sluice/app/session"
)

// devSessionTTL is how long a development session lasts.
const devSessionTTL = 12 * time.Hour

// signIn mints a development session with the key that is in force, and with what the
// settings demand of a session; no file is read.
func (s *service) signIn(userID string) (string, time.Time, error) {
	now := s.now()
	token, err := session.Mint(*s.signer.Load(), session.MintClaims{
		UserID: userID, Issuer: s.config.SessionIssuer, Audience: s.config.SessionAudience,
	}, devSessionTTL, now)
	return token, now.Add(devSessionTTL), err
}

// sourceOf keys a request's source.
func (s *service) sourceOf(r *source.Resolver) func(*http.Request, *admission.Request) {
	return func(in *http.Request, out *admission.Request) {
		got := r.Resolve(in.RemoteAddr, in.Header["X-Forwarded-For"])
		key := got.Key(s.gate.Hasher())
		out.SourceKey, out.SourcePrefixKey, out.SourceUnparsable = key.ID, key.Prefix, got.Via == source.Unparsable
	}
}

// gatewayUser reads the identity that a gateway has verified: from trusted peers only,
// and only when a setting names its header. A proxy that merely forwards addresses would
// pass on whatever its clients wrote there.
func (s *service) gatewayUser(r *source.Resolver) func(*http.Request) string {
	name := http.CanonicalHeaderKey(s.config.IdentityHeader)
	return func(in *http.Request) string {
		if name == "" {
			return ""
		}
		v := in.Header[name]
		if len(v) != 1 || !r.TrustsPeer(in.RemoteAddr) {
			return ""
		}
		return v[0]
	}
}

// hashUser names a user in logs: keyed, so that a log alone cannot be searched for a
// user by trying ids.
func (s *service) hashUser(userID string) string {
	secret, _ := s.keyring.nonce.Secret()
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("log user|" + userID))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
