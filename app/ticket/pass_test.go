package ticket_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/app/ticket"
)

func samplePass() ticket.Pass {
	return ticket.Pass{
		ActivityID: "10001", UserID: "70000001", DeviceHash: admission.DeviceHash("device-0123456789"),
		Lane: "default", JoinedAt: opening, Sequence: 17,
	}
}

func TestPassGolden(t *testing.T) {
	raw, err := newRing(t, keyV1).IssuePass(samplePass())
	if err != nil {
		t.Fatal(err)
	}
	want := signed(t, keySet(t, keyV1), `{"alg":"HS256","kid":"ticket-key-202606","typ":"seckill-pass"}`,
		`{"version":1,"key_id":"ticket-key-202606","activity_id":"10001","user_id":"70000001","device_hash":"`+
			samplePass().DeviceHash+`","lane":"default","joined_ms":1782388800000,"sequence":17}`)
	if raw != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}

func TestPassRoundTrip(t *testing.T) {
	ring := newRing(t, keyV1)
	rapid.Check(t, func(t *rapid.T) {
		p := ticket.Pass{
			ActivityID: formatUint(rapid.Uint64Range(1, 1<<63-1).Draw(t, "activity_id")),
			UserID:     formatUint(rapid.Uint64Range(1, 1<<63-1).Draw(t, "user_id")),
			DeviceHash: admission.DeviceHash(rapid.String().Draw(t, "device")),
			Lane:       rapid.StringMatching(`[A-Za-z0-9._:-]{1,32}`).Draw(t, "lane"),
			JoinedAt:   time.UnixMilli(rapid.Int64Range(0, 1<<53-1).Draw(t, "joined_ms")),
			Sequence:   rapid.Int64Range(1, 1<<53-1).Draw(t, "sequence"),
		}
		raw, err := ring.IssuePass(p)
		if err != nil {
			t.Fatal(err)
		}
		got, reason := ring.VerifyPass(raw, ticket.PassExpect{ActivityID: p.ActivityID, UserID: p.UserID, DeviceHash: p.DeviceHash})
		if reason != ticket.OK || got != p {
			t.Fatalf("%v, %+v", reason, got)
		}
		if u, err := ticket.Inspect(raw); err != nil || u.Pass == nil || *u.Pass != p {
			t.Fatalf("inspect: %+v, %v", u, err)
		}
	})
}

func TestPassReasons(t *testing.T) {
	set, ring := keySet(t, keyV1), newRing(t, keyV1)
	p := samplePass()
	good, err := ring.IssuePass(p)
	if err != nil {
		t.Fatal(err)
	}
	own := ticket.PassExpect{ActivityID: p.ActivityID, UserID: p.UserID, DeviceHash: p.DeviceHash}
	header := unb64(t, strings.Split(good, ".")[0])
	for _, tc := range []struct {
		want ticket.Reason
		raw  string
		edit func(*ticket.PassExpect)
	}{
		{ticket.Missing, "", nil},
		{ticket.TooLong, strings.Repeat("a", 1025), nil},
		{ticket.Format, "a.b.c", nil},
		{ticket.UnknownKey, signed(t, set, strings.Replace(header, "202606", "1", 1), "{}"), nil},
		{ticket.Signature, good[:len(good)-43] + strings.Repeat("A", 43), nil},
		{ticket.Payload, signed(t, set, header, strings.Replace(unb64(t, strings.Split(good, ".")[1]), ":17", ":0", 1)), nil},
		{ticket.OtherActivity, good, func(e *ticket.PassExpect) { e.ActivityID = "2" }},
		{ticket.OtherUser, good, func(e *ticket.PassExpect) { e.UserID = "2" }},
		{ticket.OtherDevice, good, func(e *ticket.PassExpect) { e.DeviceHash = "2" }},
		{ticket.OK, good, nil},
	} {
		e := own
		if tc.edit != nil {
			tc.edit(&e)
		}
		if got, reason := ring.VerifyPass(tc.raw, e); reason != tc.want || reason != ticket.OK && got != (ticket.Pass{}) {
			t.Errorf("got %v and %+v, want %v", reason, got, tc.want)
		}
	}
	for field, edit := range map[string]func(*ticket.Pass){
		"activity_id": func(p *ticket.Pass) { p.ActivityID = "" },
		"user_id":     func(p *ticket.Pass) { p.UserID = "-1" },
		"device_hash": func(p *ticket.Pass) { p.DeviceHash = "sha256:" },
		"lane":        func(p *ticket.Pass) { p.Lane = `a","sequence":1` },
		"joined_ms":   func(p *ticket.Pass) { p.JoinedAt = time.UnixMilli(-1) },
		"sequence":    func(p *ticket.Pass) { p.Sequence = 0 },
	} {
		bad := p
		edit(&bad)
		if _, err := ring.IssuePass(bad); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
