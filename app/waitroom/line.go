package waitroom

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Line is everybody who joined, in order of rank: the leader's index (8 bytes a person
// once drawn, about 100 before). It is built from the join log alone, in whatever order that
// is read, so a new leader builds the same.
type Line struct {
	activity admission.Activity
	seal     admission.RoomSeal // zero while the draw is open
	lost     int64              // numbers up to this one may be of places that the log has lost
	drawn    []admission.Place  // those in the draw, until there is a seed
	late     []uint64           // ranks behind the draw, sorted; of fifo all
	ranks    []uint64           // of the draw, sorted
	restored int64              // places of the log that were given before the loss
	sealed   bool               // the draw is over: ranks is complete
}

// NewLine starts an empty line as the published state describes it: a seal that is
// published counts, whatever the clocks and a later version's opening say now.
func NewLine(a admission.Activity, published admission.RoomState) *Line {
	l := &Line{activity: a, seal: published.Seal}
	if published.Lost != nil {
		l.lost = published.Lost.Through
	}
	return l
}

// Append takes a page of the join log.
func (l *Line) Append(page []admission.Place) {
	var late []uint64
	for _, p := range page {
		before := p.Sequence <= l.lost
		if before {
			l.restored++
		}
		switch {
		case l.activity.Fairness.Mode != admission.FairnessFIFO && l.inDraw(p):
			if !l.sealed {
				l.drawn = append(l.drawn, p)
			}
		case !before: // else it is released by its number, as those are that are not stored again
			late = append(late, l.lateRank(p.Sequence))
		}
	}
	l.late = insert(l.late, late)
}

func (l *Line) inDraw(p admission.Place) bool {
	if !l.seal.Zero() {
		return l.seal.Covers(p)
	}
	return p.JoinedAt.Before(l.activity.DrawClosesAt())
}

// insert merges new ranks into sorted ones. Most of them are greater than all before.
func insert(sorted, more []uint64) []uint64 {
	if len(more) == 0 {
		return sorted
	}
	slices.Sort(more)
	from, _ := slices.BinarySearch(sorted, more[0])
	sorted = append(sorted, more...)
	slices.Sort(sorted[from:])
	return sorted
}

// Chain links one place to those before it: SHA-256 over the link before and
// "user|lane|joined_ms|sequence". The last link of the draw is the join root.
func Chain(before [sha256.Size]byte, p admission.Place) [sha256.Size]byte {
	b := append([]byte(nil), before[:]...)
	b = append(append(b, p.UserID...), '|')
	b = append(append(b, p.Lane...), '|')
	b = append(strconv.AppendInt(b, p.JoinedAt.UnixMilli(), 10), '|')
	b = strconv.AppendInt(b, p.Sequence, 10)
	return sha256.Sum256(b)
}

// Root is the join root: the chain over those in the draw in order of sequence, with user
// ids deciding where a store that forgot gave a number twice; and how many they are.
func (l *Line) Root() (root string, drawn int64) {
	slices.SortFunc(l.drawn, func(a, b admission.Place) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.UserID, b.UserID))
	})
	var chain [sha256.Size]byte
	for _, p := range l.drawn {
		chain = Chain(chain, p)
	}
	return hex.EncodeToString(chain[:]), int64(len(l.drawn))
}

// Draw orders those who joined before the draw closed, under the seal that is published
// or is about to be.
func (l *Line) Draw(seal admission.RoomSeal, seed RankSeed) {
	if l.sealed {
		return
	}
	l.ranks = make([]uint64, 0, len(l.drawn))
	for _, p := range l.drawn {
		l.ranks = append(l.ranks, seed.Rank(l.activity.ID, p.UserID))
	}
	slices.Sort(l.ranks)
	l.seal, l.drawn, l.sealed = seal, nil, true
}

// Exact reports whether the line has everybody whose rank is from watermark on, once its
// log was read to the end. It has not while the draw is open, nor of places that were lost.
func (l *Line) Exact(watermark uint64) bool {
	switch {
	case !l.Sealed():
		return false
	case l.lost == 0:
		return true
	case l.activity.Fairness.Mode != admission.FairnessFIFO && l.lost <= l.seal.Last: // nobody behind the draw was lost
		return watermark >= Drawn
	default:
		return watermark > l.lateRank(l.lost)
	}
}

// Released counts the people below a watermark.
func (l *Line) Released(watermark uint64) int64 {
	drawn, _ := slices.BinarySearch(l.ranks, watermark)
	late, _ := slices.BinarySearch(l.late, watermark)
	return int64(drawn) + int64(late)
}

// Advance moves a watermark on by at most people, never past the last rank given. Before
// the draw it moves nobody: those behind the draw would come first.
func (l *Line) Advance(watermark uint64, people int64) (next uint64, released int64) {
	if !l.Sealed() {
		return watermark, 0
	}
	at := l.Released(watermark)
	to := min(at+people, l.Len())
	if to <= at {
		return watermark, 0
	}
	next = l.at(to-1) + 1
	// Equal ranks are released together: a watermark cannot part them.
	return next, l.Released(next) - at
}

// at is the rank of the n-th in line, from 0.
func (l *Line) at(n int64) uint64 {
	if n < int64(len(l.ranks)) {
		return l.ranks[n]
	}
	return l.late[n-int64(len(l.ranks))]
}

// Crowd is what is known of the people of a line without its log.
type Crowd struct {
	FIFO  bool
	Drawn int64 // people in the draw
	From  int64 // those behind the draw have greater numbers
	Last  int64 // the greatest number given
	// Gaps are numbers of those who joined just before a loss, few if any; behind the last
	// gap the log has everybody again.
	Gaps []admission.RoomGap
}

// Proportional is Advance for a leader whose line does not have everybody: ranks of the
// draw are spread evenly, and behind it a number stands for a person. Numbers that nobody
// has make it release fewer than people. Of those who joined while the draw closed some
// may have a number of before; they come with the first behind it. released is an
// estimate; where the line has everybody again, Line.Released corrects it.
func Proportional(watermark uint64, people int64, c Crowd) (next uint64, released int64) {
	rank := LateRank
	if c.FIFO {
		rank = func(sequence int64) uint64 { return uint64(sequence) }
	}
	if !c.FIFO && watermark < Drawn && c.Drawn > 0 {
		people = min(people, c.Drawn)
		next = min(watermark+Drawn/uint64(c.Drawn)*uint64(people), Drawn)
		return next, people
	}
	from, end, past := max(watermark, rank(c.From+1)), rank(c.Last+1), uint64(0)
	for _, gap := range c.Gaps {
		if past = rank(gap.Through + 1); from < past {
			end = rank(gap.Last + 1)
			break
		}
	}
	next = max(from, min(from+uint64(max(people, 0)), end))
	released = int64(next - from)
	if people > 0 && next >= end && next < past {
		next = past
	}
	if people <= 0 || next <= from {
		return watermark, 0
	}
	return next, released
}

// Len is how many people are in the line.
func (l *Line) Len() int64 { return int64(len(l.drawn) + len(l.ranks) + len(l.late)) }

// Restored is how many of the places in the log were given before the room was lost.
func (l *Line) Restored() int64 { return l.restored }

func (l *Line) lateRank(sequence int64) uint64 {
	if l.activity.Fairness.Mode == admission.FairnessFIFO {
		return uint64(sequence)
	}
	return LateRank(sequence)
}

// RankOf is a place's rank under the draw that seal tells of. ok is false before the draw.
func RankOf(a *admission.Activity, p admission.Place, seal admission.RoomSeal, seed RankSeed) (rank uint64, ok bool) {
	switch {
	case a.Fairness.Mode == admission.FairnessFIFO:
		return uint64(p.Sequence), true
	case seal.Zero():
		return 0, false
	case seal.Covers(p):
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

// Sealed reports whether ranks are final: the draw is over, or there is none.
func (l *Line) Sealed() bool { return l.sealed || l.activity.Fairness.Mode == admission.FairnessFIFO }

// DrawClosesAt is when joining for the draw ends, as this line divides people by it while
// no seal is published.
func (l *Line) DrawClosesAt() time.Time { return l.activity.DrawClosesAt() }

// Seal is what this line divides people by; zero while the draw is open.
func (l *Line) Seal() admission.RoomSeal { return l.seal }
