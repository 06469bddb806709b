package waitroom

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Line is everybody who joined, in order of rank: the leader's index (8 bytes a person
// once drawn). It is built from the join log alone, so a new leader builds the same.
type Line struct {
	activity admission.Activity
	cursor   int64             // log lines read
	covers   int64             // how many of the first lines a published draw covers; unpublished when there is none
	chain    [sha256.Size]byte // over the lines read that are in the draw
	drawn    int64             // how many of them there are
	users    []string          // of the drawn, until there is a seed
	ranks    []uint64          // sorted; those drawn, then those who came later
	sealed   bool              // the draw is over: ranks is complete up to cursor
}

// unpublished: who is in the draw is told by the clock.
const unpublished = -1

// NewLine starts an empty line of an activity whose draw nobody has published.
func NewLine(a admission.Activity) *Line { return &Line{activity: a, covers: unpublished} }

// PublishedLine starts an empty line of a draw that was published over the first drawn
// people of the log. What is published counts, whatever the clocks and a later version's
// opening say now.
func PublishedLine(a admission.Activity, drawn int64) *Line { return &Line{activity: a, covers: drawn} }

// Cursor is where the next page of the join log begins.
func (l *Line) Cursor() int64 { return l.cursor }

// Append takes a page of the join log, in order.
func (l *Line) Append(page []admission.Place) {
	for _, p := range page {
		l.cursor++
		switch {
		case l.activity.Fairness.Mode == admission.FairnessFIFO:
			l.ranks = append(l.ranks, uint64(p.Sequence))
		case !l.sealed && l.inDraw(p):
			l.chain = Chain(l.chain, p)
			l.drawn++
			l.users = append(l.users, p.UserID)
		default:
			// Behind the draw. The log is in order of time, so nobody drawn comes after.
			l.ranks = append(l.ranks, LateRank(p.Sequence))
		}
	}
}

func (l *Line) inDraw(p admission.Place) bool {
	if l.covers != unpublished {
		return l.cursor <= l.covers
	}
	return p.JoinedAt.Before(l.activity.DrawClosesAt())
}

// Chain links one line of the join log to those before it: SHA-256 over the link before
// and "user|lane|joined_ms|sequence". The last link of the draw is the join root.
func Chain(before [sha256.Size]byte, p admission.Place) [sha256.Size]byte {
	b := append([]byte(nil), before[:]...)
	b = append(append(b, p.UserID...), '|')
	b = append(append(b, p.Lane...), '|')
	b = append(strconv.AppendInt(b, p.JoinedAt.UnixMilli(), 10), '|')
	b = strconv.AppendInt(b, p.Sequence, 10)
	return sha256.Sum256(b)
}

// Root is the join root as published, and how many people it covers.
func (l *Line) Root() (root string, drawn int64) {
	return hex.EncodeToString(l.chain[:]), l.drawn
}

// Draw orders those who joined before the draw closed.
func (l *Line) Draw(seed RankSeed) {
	if l.sealed {
		return
	}
	late := l.ranks
	l.ranks = make([]uint64, 0, len(l.users)+len(late))
	for _, u := range l.users {
		l.ranks = append(l.ranks, seed.Rank(l.activity.ID, u))
	}
	slices.Sort(l.ranks)
	l.ranks = append(l.ranks, late...)
	l.users, l.sealed = nil, true
}

// Released counts the people below a watermark.
func (l *Line) Released(watermark uint64) int64 {
	n, _ := slices.BinarySearch(l.ranks, watermark)
	return int64(n)
}

// Advance moves a watermark on by at most people, never past the last rank given. Before
// the draw it moves nobody: those behind the draw would come first.
func (l *Line) Advance(watermark uint64, people int64) (next uint64, released int64) {
	if !l.Sealed() {
		return watermark, 0
	}
	at := l.Released(watermark)
	to := min(at+people, int64(len(l.ranks)))
	if to <= at {
		return watermark, 0
	}
	next = l.ranks[to-1] + 1
	// Equal ranks are released together: a watermark cannot part them.
	return next, l.Released(next) - at
}

// Proportional is Advance for a leader that has not read the join log to its end: it knows
// how many people the published draw covers and how many have joined, and that ranks are
// spread evenly. released is right in the mean; Line.Released corrects it later.
func Proportional(watermark uint64, people, drawn, joined int64) (next uint64, released int64) {
	if watermark < Drawn && drawn > 0 {
		people = min(people, drawn)
		next = min(watermark+Drawn/uint64(drawn)*uint64(people), Drawn)
		return next, people
	}
	from := max(watermark, LateRank(drawn+1))
	next = min(from+uint64(people), LateRank(joined+1))
	if people <= 0 || next <= from {
		return watermark, 0
	}
	return next, int64(next - from)
}

// Len is how many people are in the line.
func (l *Line) Len() int64 { return int64(len(l.ranks)) + int64(len(l.users)) }

// RankOf is a place's rank. drawn is how many people the draw covers: they are the first
// of the join log. ok is false before the draw.
func RankOf(a *admission.Activity, p admission.Place, drawn int64, seed RankSeed, sealed bool) (rank uint64, ok bool) {
	switch {
	case a.Fairness.Mode == admission.FairnessFIFO:
		return uint64(p.Sequence), true
	case !sealed:
		return 0, false
	case p.Sequence <= drawn:
		return seed.Rank(a.ID, p.UserID), true
	default:
		return LateRank(p.Sequence), true
	}
}

// stateAt is the activity's state by the clock alone: what an instance says when the
// leader has said nothing newer.
func stateAt(a *admission.Activity, published string, now time.Time) string {
	switch {
	case a.Ended || !now.Before(a.ClosesAt):
		return StateEnded
	case published != "":
		return published
	default:
		return StatePrequeue
	}
}

// The states of an activity.
const (
	StateScheduled = "SCHEDULED"
	StatePrequeue  = "PREQUEUE"
	StateDrawn     = "DRAWN"
	StateOpen      = "OPEN"
	StatePaused    = "PAUSED"
	StateSoldOut   = "SOLD_OUT"
	StateEnded     = "ENDED"
)

// ActivityID is the activity whose line this is.
func (l *Line) ActivityID() string { return l.activity.ID }

// Sealed reports whether ranks are final: the draw is over, or there is none.
func (l *Line) Sealed() bool { return l.sealed || l.activity.Fairness.Mode == admission.FairnessFIFO }

// DrawClosesAt is when joining for the draw ends, as this line divides people by it.
func (l *Line) DrawClosesAt() time.Time { return l.activity.DrawClosesAt() }

// Covers is how many people the published draw covers that this line was begun with;
// negative when it was begun before there was one.
func (l *Line) Covers() int64 { return l.covers }
