package waitroom

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
)

// A join before the opening can cost some work, so that a crowd of invented accounts is
// dearer than a person. Nothing is stored: any instance makes the same seed again and
// checks a solution with two hashes. Whoever solved one may join with it as often as they
// like while it lives: they have one place anyway.

const (
	// challengeWindow is how long a seed is given out; it is good for one window more. So a
	// person has at least one window, and a stock of solutions lives for two at the most.
	challengeWindow = time.Minute
	// challengeBytes of the seed's HMAC: too many to guess, few to send.
	challengeBytes = 16
)

// challenges makes and checks the challenges of a join.
type challenges struct{ key []byte }

func newChallenges(drawKey keys.Key) challenges {
	secret, _ := drawKey.Secret() // start-up has checked the key
	return challenges{secret}
}

// challenge is what the user is asked to solve at now.
func (c challenges) challenge(activityID, userID string, difficulty int, now time.Time) *admission.Challenge {
	w := windowOf(now)
	return &admission.Challenge{
		Kind: "pow", Seed: c.seed(activityID, userID, w), Difficulty: difficulty,
		ExpiresAt: time.Unix(0, 0).UTC().Add(time.Duration(w+2) * challengeWindow),
	}
}

// solved reports whether "<seed>:<counter>" solves a challenge that this user was given
// for the activity and that still lives.
func (c challenges) solved(activityID, userID string, difficulty int, now time.Time, solution string) bool {
	seed, counter, ok := strings.Cut(solution, ":")
	if !ok || !canonical(counter) {
		return false
	}
	w := windowOf(now)
	// One instance's clock may be behind the one that gave the seed out.
	mine := false
	for _, window := range [...]int64{w, w - 1, w + 1} {
		mine = mine || hmac.Equal([]byte(seed), []byte(c.seed(activityID, userID, window)))
	}
	return mine && zeroBits(sha256.Sum256([]byte(seed+"|"+userID+"|"+counter))) >= difficulty
}

// seed is HMAC-SHA256(draw key, "join-challenge|" activity "|" user "|" window), shortened.
// The first word keeps it apart from everything else that the key makes.
func (c challenges) seed(activityID, userID string, window int64) string {
	sum := sign(c.key, "join-challenge|"+activityID+"|"+userID+"|"+strconv.FormatInt(window, 10))
	return base64.RawURLEncoding.EncodeToString(sum[:challengeBytes])
}

func windowOf(now time.Time) int64 { return now.Unix() / int64(challengeWindow/time.Second) }

// canonical reports whether s is a counter in its one spelling: decimal, below 2^64.
func canonical(s string) bool {
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && strconv.FormatUint(n, 10) == s
}

func zeroBits(sum [sha256.Size]byte) (n int) {
	for _, b := range sum {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}

// demand is the challenge that a join must solve first; nil when it need not. It is asked
// before the opening only: afterwards a place is worth what its rank is, at the end of the
// line, and a turn must not be lost over a sum.
func (r *Room) demand(req *admission.Request, solution string) *admission.Challenge {
	a, difficulty := req.Activity, 0
	if !req.Now.Before(a.OpensAt) {
		return nil
	}
	for i := range a.SKUs { // one line for all: the strictest policy counts
		difficulty = max(difficulty, r.config.Policy(admission.SKURef{ActivityID: a.ID, SKUID: a.SKUs[i].ID}).ChallengeBits)
	}
	if difficulty <= 0 {
		return nil
	}
	if solution != "" && r.challenges.solved(a.ID, req.UserID, difficulty, req.Now, solution) {
		r.config.Metrics.Solved.Inc()
		return nil
	}
	if solution == "" {
		r.config.Metrics.Challenged.Inc()
	} else {
		r.config.Metrics.Unsolved.Inc()
	}
	return r.challenges.challenge(a.ID, req.UserID, difficulty, req.Now)
}

var challengeRequired = admission.Decision{Outcome: admission.ChallengeRequired, Stage: admission.StageRoom, Reason: admission.ReasonChallenge}
