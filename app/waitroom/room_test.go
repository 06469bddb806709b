package waitroom

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/adapters/embedded"
	"github.com/sluice-io/sluice/adapters/redis"
	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/keys"
	"github.com/sluice-io/sluice/app/ticket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is one instance's room on an embedded store, with a clock of the test's own.
type bed struct {
	t       *testing.T
	store   *faultyStore
	now     time.Time
	policy  Policy
	holders map[string]admission.Holder // by user
	soldOut bool
	unpaid  map[string]bool // by SKU: units of it may come back
	metrics *Metrics
	room    *Room
	a       *admission.Activity
}

// faultyStore is a store that can be away.
type faultyStore struct {
	admission.Room
	away   error
	leases atomic.Int64 // of numbers
}

func (s *faultyStore) Numbers(ctx context.Context, activityID string, n, known int64) (int64, error) {
	if s.away != nil {
		return 0, s.away
	}
	s.leases.Add(1)
	return s.Room.Numbers(ctx, activityID, n, known)
}

func (s *faultyStore) Join(ctx context.Context, activityID string, p admission.Place, closed time.Time) (admission.Place, error) {
	if s.away != nil {
		return admission.Place{}, s.away
	}
	return s.Room.Join(ctx, activityID, p, closed)
}

func (s *faultyStore) State(ctx context.Context, activityID string) (admission.RoomState, error) {
	if s.away != nil {
		return admission.RoomState{}, s.away
	}
	return s.Room.State(ctx, activityID)
}

var errAway = fmt.Errorf("connection refused: %w", admission.ErrUnavailable)

func octKey(t testing.TB, kid, k string) keys.Set {
	t.Helper()
	set, err := keys.Parse("test", []byte(`{"keys":[{"kty":"oct","kid":"`+kid+`","alg":"HS256","k":"`+k+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newBed(t *testing.T) *bed {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client, err := redis.Open(t.Context(), server.URL(), redis.Options{Timeout: 20 * time.Second, DialTimeout: 20 * time.Second, PoolTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ring, err := ticket.NewRing(octKey(t, "ticket", "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"), ticket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	deriver, err := ticket.NewDeriver(octKey(t, "nonce", "AgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").First())
	if err != nil {
		t.Fatal(err)
	}
	base := time.Now().UTC().Truncate(time.Millisecond) // people join by the store's clock, which is the real one
	b := &bed{
		t: t, store: &faultyStore{Room: redis.NewRoom(client)}, now: base, holders: map[string]admission.Holder{},
		policy:  Policy{TicketTTL: 30 * time.Second, LongestPoll: 2 * time.Second},
		metrics: NewMetrics(prometheus.NewRegistry()),
		a: &admission.Activity{
			ID: "10001", Version: 1, PathID: "p_0123456789", OpensAt: base.Add(time.Hour), ClosesAt: base.Add(2 * time.Hour), PublishedAt: base, MaxAttempts: 1,
			SKUs:     []admission.SKU{{ID: "90001", Stock: 10, LimitPerUser: 1}},
			Fairness: admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second},
		},
	}
	b.room = New(Config{
		Store: b.store, Ring: ring, Deriver: deriver, DrawKey: octKey(t, "draw", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").First(),
		Now: func() time.Time { return b.now }, Log: slog.New(slog.DiscardHandler), Metrics: b.metrics,
		Holder:  func(_ admission.SKURef, user string) (admission.Holder, bool) { h, ok := b.holders[user]; return h, ok },
		SoldOut: func(admission.SKURef) bool { return b.soldOut }, MayReturn: func(ref admission.SKURef) bool { return b.unpaid[ref.SKUID] },
		Policy: func(admission.SKURef) Policy { return b.policy },
	})
	if err := b.store.Open(t.Context(), b.a.ID); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) request(user, device string) *admission.Request {
	sum := sha256.Sum256([]byte(device))
	return &admission.Request{Now: b.now, Activity: b.a, SKU: &b.a.SKUs[0], UserID: user, DeviceHash: "sha256:" + hex.EncodeToString(sum[:])}
}

func (b *bed) join(user, device string) admission.Joined {
	b.t.Helper()
	j, d := b.room.Join(b.t.Context(), b.request(user, device), "", "")
	if d.Refused() {
		b.t.Fatalf("user %s cannot join: %+v", user, d)
	}
	return j
}

// exchange wants an outcome of a ticket call.
func (b *bed) exchange(want admission.Outcome, user, device, pass string) admission.Exchanged {
	b.t.Helper()
	got, d := b.room.Exchange(b.t.Context(), b.request(user, device), pass)
	if d.Outcome != want {
		b.t.Errorf("user %s: %s (%s), want %s", user, code(d.Outcome), d.Reason, code(want))
	}
	if (got.Ticket == "") != (d.Outcome != admission.Pass) {
		b.t.Errorf("user %s: ticket %q with %s", user, got.Ticket, code(d.Outcome))
	}
	return got
}

func code(o admission.Outcome) string {
	if o == admission.Pass {
		return "a ticket"
	}
	return o.Row().Code
}

// draw publishes the draw over the people who have joined and a watermark, as a leader would.
func (b *bed) draw(term int64, watermark uint64) admission.RoomState {
	b.t.Helper()
	line := NewLine(*b.a, admission.RoomState{})
	page, _, more, err := b.store.Members(b.t.Context(), b.a.ID, nil, 10_000)
	if err != nil || more {
		b.t.Fatal(more, err)
	}
	if err := b.store.CloseDraw(b.t.Context(), b.a.ID, b.a.DrawClosesAt()); err != nil {
		b.t.Fatal(err)
	}
	count, err := b.store.Joined(b.t.Context(), b.a.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	line.Append(page)
	s := admission.RoomState{Term: term, State: StateOpen, EmitAt: b.now, Joined: count.People, Last: count.Last, Lanes: map[string]admission.LaneState{DefaultLane: {Watermark: watermark}}}
	if old, err := b.store.State(b.t.Context(), b.a.ID); err == nil {
		s.Seal = old.Seal // a draw is sealed once
	}
	if s.Seal.Zero() {
		root, drawn := line.Root()
		s.Seal = admission.RoomSeal{Root: root, Drawn: drawn, BeforeMS: b.a.DrawClosesAt().UnixMilli(), Last: count.Last}
	}
	b.publish(s)
	return s
}

func (b *bed) publish(s admission.RoomState) {
	b.t.Helper()
	if err := b.store.SetState(b.t.Context(), b.a.ID, s); err != nil {
		b.t.Fatal(err)
	}
	b.refresh()
}

func (b *bed) refresh() {
	b.t.Helper()
	if err := b.room.Refresh(b.t.Context(), []*admission.Activity{b.a}); err != nil && b.store.away == nil {
		b.t.Fatal(err)
	}
}

const everybody = 1 << 53 // a watermark above every rank but those of the far future

func TestAPassIsBoundToItsOwner(t *testing.T) {
	b := newBed(t)
	mine := b.join("70000001", "phone").Pass
	other := b.join("70000002", "phone").Pass
	b.draw(1, everybody-1)
	b.now = b.a.OpensAt
	b.exchange(admission.Pass, "70000001", "phone", mine)
	b.exchange(admission.TokenInvalid, "70000001", "tablet", mine)
	b.exchange(admission.TokenInvalid, "70000002", "phone", mine)
	b.exchange(admission.TokenInvalid, "70000001", "phone", other)
	for _, forged := range []string{"", "x", mine + "x", mine[:len(mine)-1], strings.Repeat("a", 10_000)} {
		b.exchange(admission.TokenInvalid, "70000001", "phone", forged)
	}
	elsewhere := *b.a
	elsewhere.ID = "10002"
	b.a = &elsewhere
	b.exchange(admission.TokenInvalid, "70000001", "phone", mine)
}

// TestW04OnePlace: ten tabs on ten devices at once are one place with one ticket.
func TestW04OnePlace(t *testing.T) {
	b := newBed(t)
	b.join("70000009", "phone")
	joined := make([]admission.Joined, 10)
	var group sync.WaitGroup
	for i := range joined {
		group.Go(func() {
			joined[i], _ = b.room.Join(t.Context(), b.request("70000001", fmt.Sprint("device ", i)), "", "")
		})
	}
	group.Wait()
	s := b.draw(1, everybody-1)
	if s.Seal.Drawn != 2 || s.Joined != 2 {
		t.Fatalf("%d of %d are in the draw, want one for the ten", s.Seal.Drawn, s.Joined)
	}
	b.now = b.a.OpensAt
	first := b.exchange(admission.Pass, "70000001", "device 0", joined[0].Pass)
	for i, j := range joined {
		if !j.JoinedAt.Equal(joined[0].JoinedAt) || j.Lane != DefaultLane {
			t.Errorf("tab %d: %+v, want the place of %+v", i, j, joined[0])
		}
		got := b.exchange(admission.Pass, "70000001", fmt.Sprint("device ", i), j.Pass)
		if got.Nonce != first.Nonce || got.RequestID != first.RequestID {
			t.Errorf("tab %d: another nonce, so another purchase", i)
		}
	}
	if c := b.room.Counted()["10001"]; c.IssuedAll != 1 || c.Issued[b.now.Unix()] != 1 {
		t.Errorf("%+v, want one person counted", c)
	}
	if n := testutil.ToFloat64(b.metrics.Issued); n != 11 {
		t.Errorf("%v tickets are shown", n)
	}
}

// TestWhenATurnIsOne: what the ticket call says over the life of a sale and in every mode,
// to somebody who is released.
func TestWhenATurnIsOne(t *testing.T) {
	b := newBed(t)
	pass := b.join("70000001", "phone").Pass
	ask := func(want admission.Outcome) admission.Exchanged {
		t.Helper()
		return b.exchange(want, "70000001", "phone", pass)
	}
	ask(admission.QueueWaiting) // nothing was published
	b.draw(1, everybody-1)
	b.now = b.a.OpensAt.Add(-time.Millisecond)
	ask(admission.QueueWaiting)
	b.now = b.a.OpensAt
	for mode, want := range map[admission.Mode]admission.Outcome{
		admission.ModeNormal: admission.Pass, admission.ModeDegraded: admission.Pass,
		admission.ModeQueueOnly: admission.QueueWaiting, admission.ModeClosed: admission.QueueWaiting,
	} {
		b.policy.Mode = mode
		if got := ask(want); want == admission.Pass && (got.RequestID != ticket.RequestID(got.Nonce) || !got.ExpiresAt.Equal(b.now.Add(b.policy.TicketTTL)) || got.PathID != b.a.PathID) {
			t.Errorf("%v: %+v", mode, got)
		}
	}
	b.policy.Mode = admission.ModeNormal
	b.soldOut = true
	ask(admission.SoldOut)
	b.soldOut = false
	b.now = b.a.ClosesAt.Add(-time.Millisecond)
	ask(admission.Pass)
	b.now = b.a.ClosesAt
	ask(admission.ActivityEnded)
	b.now = b.a.OpensAt
	b.a.Ended = true
	ask(admission.ActivityEnded)
	if _, d := b.room.Join(t.Context(), b.request("70000002", "phone"), "", ""); d.Outcome != admission.ActivityEnded {
		t.Errorf("join after the end: %v", d)
	}
}

// TestAHolderGetsTheSameAgain: whatever became of the sale.
func TestAHolderGetsTheSameAgain(t *testing.T) {
	b := newBed(t)
	pass := b.join("70000001", "phone").Pass
	b.draw(1, everybody-1)
	b.now = b.a.OpensAt
	first := b.exchange(admission.Pass, "70000001", "phone", pass)
	b.holders["70000001"] = admission.Holder{RequestID: first.RequestID, ReservationID: "r_1", Attempt: 1}
	for name, change := range map[string]func(){
		"at once":     func() {},
		"sold out":    func() { b.soldOut = true },
		"closed mode": func() { b.policy.Mode = admission.ModeClosed },
		"closed":      func() { b.now = b.a.ClosesAt.Add(time.Hour) },
		"ended":       func() { b.a.Ended = true },
	} {
		change()
		if got := b.exchange(admission.Pass, "70000001", "phone", pass); got.Nonce != first.Nonce || got.RequestID != first.RequestID {
			t.Errorf("%s: %s and %s, want %s and %s", name, got.Nonce, got.RequestID, first.Nonce, first.RequestID)
		}
	}
	b.exchange(admission.TokenInvalid, "70000001", "tablet", pass)
	if c := b.room.Counted()["10001"]; c.IssuedAll != 1 {
		t.Errorf("%d people counted, want the one", c.IssuedAll)
	}
}

// TestWhoIsNotReleasedWaits: exactly those below the watermark get a ticket.
func TestWhoIsNotReleasedWaits(t *testing.T) {
	b := newBed(t)
	passes := map[string]string{}
	for n := range 40 {
		user := fmt.Sprint(70_000_001 + n)
		passes[user] = b.join(user, "phone").Pass
	}
	s := b.draw(1, 0)
	late := b.join("79999999", "phone")
	seed, err := b.room.Seed(b.a, s.Seal.Root)
	if err != nil {
		t.Fatal(err)
	}
	b.now = b.a.OpensAt
	s.Lanes = map[string]admission.LaneState{DefaultLane: {Watermark: seed.Rank("10001", "70000007"), Released: 1}}
	s.EmitAt = b.now
	b.publish(s)
	released := 0
	for user, pass := range passes {
		want := admission.QueueWaiting
		if seed.Rank("10001", user) < s.Lanes[DefaultLane].Watermark {
			want = admission.Pass
			released++
		}
		if got := b.exchange(want, user, "phone", pass); want == admission.QueueWaiting && (got.Standing.Rank != seed.Rank("10001", user) || !got.Standing.Drawn || got.Poll <= 0) {
			t.Errorf("user %s: %+v", user, got)
		}
	}
	if released == 0 || released == 40 {
		t.Fatalf("%d released: the test says nothing", released)
	}
	got := b.exchange(admission.QueueWaiting, "79999999", "phone", late.Pass)
	if got.Standing.Rank != LateRank(41) {
		t.Errorf("behind the draw: rank %d, want %d", got.Standing.Rank, LateRank(41))
	}
}

// TestOlderStatesAreIgnored: by term first, then by time.
func TestOlderStatesAreIgnored(t *testing.T) {
	now := time.Unix(1000, 0)
	store := &stateStore{}
	room := New(Config{Store: store, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler), DrawKey: octKey(t, "draw", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").First()})
	a := &admission.Activity{ID: "10001", OpensAt: now, ClosesAt: now.Add(time.Hour)}
	for _, c := range []struct {
		term      int64
		at        time.Duration
		watermark uint64
		taken     bool
	}{
		{3, 0, 10, true},
		{3, time.Second, 20, true},
		{3, 0, 15, false},               // of before
		{2, time.Hour, 30, false},       // of a leader before
		{4, -time.Hour, 25, true},       // a new leader whose clock is behind
		{3, 2 * time.Second, 40, false}, // the paused one
		{4, time.Second, 50, true},
	} {
		before := room.State("10001").Lanes[DefaultLane].Watermark
		store.state = admission.RoomState{Term: c.term, EmitAt: now.Add(c.at), State: StateOpen, Lanes: map[string]admission.LaneState{DefaultLane: {Watermark: c.watermark}}}
		if err := room.Refresh(t.Context(), []*admission.Activity{a}); err != nil {
			t.Fatal(err)
		}
		want := before
		if c.taken {
			want = c.watermark
		}
		if got := room.State("10001").Lanes[DefaultLane].Watermark; got != want {
			t.Errorf("term %d at %v: watermark %d, want %d", c.term, c.at, got, want)
		}
	}
}

// TestStoreAwayReleasesNobody: those released before still get their tickets.
func TestStoreAwayReleasesNobody(t *testing.T) {
	b := newBed(t)
	in, out := b.join("70000001", "phone").Pass, b.join("70000002", "phone").Pass
	s := b.draw(1, 0)
	b.now = b.a.OpensAt
	seed, err := b.room.Seed(b.a, s.Seal.Root)
	if err != nil {
		t.Fatal(err)
	}
	first, second := "70000001", "70000002"
	if seed.Rank("10001", second) < seed.Rank("10001", first) {
		first, second, in, out = second, first, out, in
	}
	s.Lanes[DefaultLane] = admission.LaneState{Watermark: seed.Rank("10001", first) + 1, Released: 1}
	s.EmitAt = b.now
	b.publish(s)
	b.store.away = errAway
	for range 3 {
		b.now = b.now.Add(time.Minute)
		b.refresh()
		b.exchange(admission.Pass, first, "phone", in)
		b.exchange(admission.QueueWaiting, second, "phone", out)
	}
	_, d := b.room.Join(t.Context(), b.request("70000003", "phone"), "", "")
	if d.Outcome != admission.DependencyUnavailable || d.RetryAfter <= 0 || d.Cause == nil {
		t.Errorf("join: %+v", d)
	}
	b.store.away = nil
	fresh := New(b.room.config)
	if _, d := fresh.Exchange(t.Context(), b.request(first, "phone"), in); d.Outcome != admission.QueueWaiting {
		t.Errorf("an instance that has read nothing: %v, want everybody to wait", code(d.Outcome))
	}
}

// document is the queue document as a browser reads it.
type wire struct {
	Gaps  []admission.RoomGap       `json:"gaps"`
	State string                    `json:"state"`
	Poll  struct{ Low, High int64 } `json:"poll_after_ms"`
	Lanes []struct {
		Watermark uint64 `json:"watermark"`
	} `json:"lanes"`
	Draw struct {
		Commitment, Secret, Trust string
		JoinRoot                  string `json:"join_root"`
		PublicValue               string `json:"public_value"`
		Drawn                     int64
	} `json:"draw"`
}

func (b *bed) document() (wire, []byte) {
	b.t.Helper()
	body, age := b.room.Queue(b.a)
	if age != time.Second {
		b.t.Errorf("max age %v", age)
	}
	var w wire
	if err := json.Unmarshal(body, &w); err != nil {
		b.t.Fatal(err)
	}
	return w, body
}

// TestW02TheDocumentHoldsNothingPersonal: one document for everybody, with nobody in it.
func TestW02TheDocumentHoldsNothingPersonal(t *testing.T) {
	b := newBed(t)
	var personal []string
	for n := range 50 {
		user := fmt.Sprint(70_000_001 + n)
		r := b.request(user, "device "+user)
		personal = append(personal, user, r.DeviceHash, b.join(user, "device "+user).Pass)
	}
	for _, at := range []time.Time{b.now, b.a.OpensAt, b.a.ClosesAt} {
		b.now = at
		b.draw(1, everybody-1)
		_, body := b.document()
		for _, p := range personal {
			if bytes.Contains(body, []byte(p)) {
				t.Errorf("the document names %s", p)
			}
		}
		if _, again := b.document(); !bytes.Equal(body, again) {
			t.Error("two people read two documents")
		}
	}
}

// TestARateThatFadesIsNone: what is left of an average after the last wave reads 0.
func TestARateThatFadesIsNone(t *testing.T) {
	b := newBed(t)
	s := &standing{state: admission.RoomState{Lanes: map[string]admission.LaneState{"default": {ReleasePerSec: 6.04e-43}, "other": {ReleasePerSec: 39.987}}}}
	if body := string(b.room.build(b.a, s, b.now)); !strings.Contains(body, `"release_per_s":0}`) || !strings.Contains(body, `"release_per_s":39.99}`) {
		t.Errorf("the document says %s", body)
	}
}

// TestTheDrawCanBeChecked: from the document alone, with an HMAC and nothing of ours, the
// rank that somebody was told comes out; and before the opening it could not be known.
func TestTheDrawCanBeChecked(t *testing.T) {
	for _, beacon := range []string{"", "drand 4711"} {
		b := newBed(t)
		b.a.Fairness.Beacon = beacon
		passes := map[string]string{}
		for n := range 20 {
			user := fmt.Sprint(70_000_001 + n)
			passes[user] = b.join(user, "phone").Pass
		}
		before, _ := b.document()
		if before.Draw.Commitment != b.room.Commitment(b.a) || before.Draw.Secret != "" || before.Draw.JoinRoot != "" || (before.Draw.Trust == "operator") != (beacon == "") {
			t.Errorf("before the draw: %+v", before.Draw)
		}
		b.draw(1, 0)
		b.now = b.a.OpensAt.Add(-time.Millisecond)
		if sealed, _ := b.document(); sealed.Draw.Secret != "" || sealed.Draw.JoinRoot == "" || sealed.Draw.Drawn != 20 {
			t.Errorf("sealed: %+v", sealed.Draw)
		}
		b.now = b.a.OpensAt.Add(time.Second)
		open, _ := b.document()
		secret, err := hex.DecodeString(open.Draw.Secret)
		if err != nil || len(secret) != 32 {
			t.Fatalf("secret %q", open.Draw.Secret)
		}
		if sum := sha256.Sum256([]byte(string(secret) + "|10001|1")); hex.EncodeToString(sum[:]) != before.Draw.Commitment {
			t.Error("the secret is not the one that was committed to")
		}
		mac := func(key []byte, text string) []byte {
			h := hmac.New(sha256.New, key)
			h.Write([]byte(text))
			return h.Sum(nil)
		}
		seed := mac(secret, open.Draw.JoinRoot+"|"+open.Draw.PublicValue)
		for user, pass := range passes {
			want := binary.BigEndian.Uint64(mac(seed, "10001|"+user)) >> 12
			if got := b.exchange(admission.QueueWaiting, user, "phone", pass).Standing.Rank; got != want {
				t.Errorf("user %s was told rank %d, the document gives %d", user, got, want)
			}
			if got := b.join(user, "phone").Standing.Rank; got != want {
				t.Errorf("user %s: join told %d", user, got)
			}
		}
	}
}

// TestTheDocumentOverTime: what the leader said last, or what the clock says by itself.
func TestTheDocumentOverTime(t *testing.T) {
	b := newBed(t)
	want := func(state string) {
		t.Helper()
		b.now = b.now.Add(documentAge)
		if w, _ := b.document(); w.State != state {
			t.Errorf("state %s, want %s", w.State, state)
		}
	}
	want(StatePrequeue)
	b.join("70000001", "phone")
	b.draw(1, 5)
	b.now = b.a.OpensAt
	want(StateOpen)
	b.policy.Mode = admission.ModeQueueOnly
	want(StatePaused)
	b.policy.Mode = admission.ModeDegraded
	want(StateOpen)
	w, _ := b.document()
	if len(w.Lanes) != 1 || w.Lanes[0].Watermark != 5 || w.Poll.Low <= 0 || w.Poll.High != 2000 {
		t.Errorf("%+v", w)
	}
	b.now = b.a.ClosesAt
	want(StateEnded)
	b.a.Fairness.Mode = admission.FairnessFIFO
	if b.room.Commitment(b.a) != "" {
		t.Error("fifo has no draw to commit to")
	}
	b.now = b.now.Add(documentAge)
	if w, _ := b.document(); w.Draw.Commitment != "" {
		t.Error("fifo shows a draw")
	}
}

// TestReopening: whether "sold out" is the last word, in every state of a sale.
func TestReopening(t *testing.T) {
	b := newBed(t)
	b.a.SKUs = append(b.a.SKUs, admission.SKU{ID: "90002", Stock: 1, LimitPerUser: 1})
	b.unpaid = map[string]bool{}
	b.now = b.a.OpensAt
	for i, c := range []struct {
		state  string
		unpaid string // of this SKU
		once   bool   // sold out before
		want   bool
	}{
		{StateOpen, "90001", false, false},
		{StateSoldOut, "", true, false},
		{StateSoldOut, "90001", true, true},
		{StateSoldOut, "90002", true, true},
		{StateOpen, "", true, true}, // reopened
		{StateSoldOut, "", true, false},
		{StateEnded, "90001", true, false},
	} {
		clear(b.unpaid)
		b.unpaid[c.unpaid] = true
		waves, err := json.Marshal(Records{SoldOutOnce: c.once})
		if err != nil {
			t.Fatal(err)
		}
		b.publish(admission.RoomState{Term: int64(i + 1), State: c.state, Waves: waves})
		b.now = b.now.Add(documentAge)
		var told struct {
			Reopening *bool `json:"reopening"`
		}
		if _, body := b.document(); json.Unmarshal(body, &told) != nil || told.Reopening == nil || *told.Reopening != c.want {
			t.Errorf("%+v: %s", c, body)
		}
	}
}

// TestStandings: whatever the state, what somebody is told is sensible and bounded.
func TestStandings(t *testing.T) {
	b := newBed(t)
	rapid.Check(t, func(t *rapid.T) {
		joined := rapid.Int64Range(1, 1_000_000).Draw(t, "joined")
		s := &standing{seed: RankSeed{1}}
		s.state.Joined = joined
		s.state.Last = joined + rapid.Int64Range(0, joined).Draw(t, "gaps")
		s.state.Seal = admission.RoomSeal{Root: "aa", Drawn: rapid.Int64Range(0, joined).Draw(t, "drawn"), BeforeMS: 1000}
		s.state.Reach = rapid.Int64Range(0, joined).Draw(t, "reach")
		s.state.Lanes = map[string]admission.LaneState{DefaultLane: {
			Watermark:     rapid.Uint64Range(0, Drawn+uint64(joined)).Draw(t, "watermark"),
			Released:      rapid.Int64Range(0, joined).Draw(t, "released"),
			ReleasePerSec: rapid.Float64Range(0, 1e5).Draw(t, "rate"),
		}}
		b.now = b.a.OpensAt.Add(time.Duration(rapid.Int64Range(-3600, 4000).Draw(t, "seconds")) * time.Second)
		p := admission.Place{
			UserID: fmt.Sprint(rapid.Int64Min(1).Draw(t, "user")), Sequence: rapid.Int64Range(1, s.state.Last).Draw(t, "sequence"),
			JoinedAt: time.UnixMilli(rapid.Int64Range(0, 2000).Draw(t, "joined_ms")),
		}
		st := b.room.where(b.a, s, p)
		left := max(0, b.a.ClosesAt.Sub(b.now))
		switch {
		case !st.Drawn:
			t.Fatal("a draw that is over gives everybody a rank")
		case st.Rank < s.state.Lanes[DefaultLane].Watermark:
			if st.Place != 0 || st.WaitLow != 0 || st.WaitHigh != 0 || st.Unlikely {
				t.Fatalf("their turn, and %+v", st)
			}
		case st.Place < 0 || st.Place >= joined:
			t.Fatalf("%d people ahead of %d", st.Place, joined)
		case st.Unlikely:
			if st.WaitLow != 0 || st.WaitHigh != 0 || s.state.Reach == 0 {
				t.Fatalf("unlikely, and %+v with a reach of %d", st, s.state.Reach)
			}
		case st.WaitLow < 0 || st.WaitLow > st.WaitHigh || st.WaitHigh > left || st.WaitHigh == 0 && left > 0:
			t.Fatalf("%+v with %v left", st, left)
		case st.WaitLow < b.a.OpensAt.Sub(b.now):
			t.Fatalf("%+v, the opening is in %v", st, b.a.OpensAt.Sub(b.now))
		}
		if poll := b.room.poll(b.a, st, b.now); poll <= 0 || poll > b.policy.LongestPoll {
			t.Fatalf("poll after %v", poll)
		}
	})
	if got := b.room.where(b.a, &standing{}, admission.Place{UserID: "1", Sequence: 1}); got != (admission.Standing{}) {
		t.Errorf("before the draw: %+v", got)
	}
	b.now = b.a.OpensAt
	s := &standing{state: admission.RoomState{Seal: admission.RoomSeal{Root: "aa", Drawn: 10, BeforeMS: 1}, Reach: 100, Lanes: map[string]admission.LaneState{DefaultLane: {Watermark: 1, Released: 20, ReleasePerSec: 10}}}}
	place := func(sequence int64) admission.Standing {
		return b.room.where(b.a, s, admission.Place{UserID: "1", Sequence: sequence, JoinedAt: time.UnixMilli(1)})
	}
	// 80 people are ahead of the 101st, at 10 a second.
	if got := place(101); got.Place != 80 || got.Unlikely || got.WaitLow != 5600*time.Millisecond || got.WaitHigh != 13*time.Second {
		t.Errorf("%+v", got)
	}
	if place(121).Unlikely || !place(122).Unlikely {
		t.Error("unlikely begins a fifth beyond the reach")
	}
}

// TestTheEndOfCounts: an activity that is not served any more leaves nothing.
func TestTheEndOfCounts(t *testing.T) {
	b := newBed(t)
	pass := b.join("70000001", "phone").Pass
	b.draw(1, everybody-1)
	b.now = b.a.OpensAt
	got := b.exchange(admission.Pass, "70000001", "phone", pass)
	r := b.request("70000001", "phone")
	r.Nonce, r.TicketIssuedAt, r.TicketExpires = got.Nonce, b.now, got.ExpiresAt
	b.room.Shed(r)
	if c := b.room.Counted()["10001"]; c.Waiting != 1 {
		t.Errorf("%+v, want one to wait", c)
	}
	b.room.Reserved(r)
	if c := b.room.Counted()["10001"]; c.Waiting != 0 || c.ReservedAll != 1 || c.Reserved[b.now.Unix()] != 1 {
		t.Errorf("%+v", c)
	}
	b.refresh()
	if c := b.room.Counted(); len(c) != 1 {
		t.Errorf("a served activity's counts are gone: %v", c)
	}
	if err := b.room.Refresh(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if c := b.room.Counted(); len(c) != 0 || b.room.Knows("10001") {
		t.Errorf("left over: %v", c)
	}
}

// toldStore answers what the test told it last.
type toldStore struct {
	admission.Room
	mu    sync.Mutex
	state admission.RoomState
	err   error
}

func (s *toldStore) tell(term int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.err = admission.RoomState{Term: term, State: StateOpen}, err
}

func (s *toldStore) State(context.Context, string) (admission.RoomState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.err
}

// TestRun: watermarks are reread each period and when woken; failures are counted.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &toldStore{}
		store.tell(1, nil)
		metrics := NewMetrics(prometheus.NewRegistry())
		room := New(Config{Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler), Metrics: metrics})
		a := &admission.Activity{ID: "10001", OpensAt: time.Now(), ClosesAt: time.Now().Add(time.Hour)}
		ctx, stop := context.WithCancel(t.Context())
		wake := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			room.Run(ctx, time.Second, func() []*admission.Activity { return []*admission.Activity{a} }, wake)
		})
		synctest.Wait()
		if room.State("10001").Term != 1 {
			t.Error("not read at the start")
		}
		store.tell(2, nil)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if room.State("10001").Term != 1 {
			t.Error("read too early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if room.State("10001").Term != 2 {
			t.Error("not reread after its period")
		}
		store.tell(3, nil)
		wake <- struct{}{}
		synctest.Wait()
		if room.State("10001").Term != 3 {
			t.Error("not reread when woken")
		}
		store.tell(4, errAway)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		stop()
		running.Wait()
		if n := testutil.ToFloat64(metrics.StoreErrors); n != 2 {
			t.Errorf("%v failures counted, want 2", n)
		}
	})
}
