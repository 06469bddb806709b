package admission_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

var published = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func good(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/activity_good.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDecodeActivity(t *testing.T) {
	got, faults := admission.DecodeActivity([]byte(good(t)), published)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := admission.Activity{
		ID: "10001", Version: 1, PathID: "p_7fK2mQ9x", Name: "Singles' day",
		OpensAt: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC), ClosesAt: time.Date(2026, 11, 11, 2, 0, 0, 0, time.UTC),
		SKUs: []admission.SKU{
			{ID: "90001", Name: "Phone", Stock: 1000, LimitPerUser: 2, Price: admission.Money{Amount: "9.90", Currency: "CNY"}},
			{ID: "9007199254740993", Name: "耳机", Stock: 5, LimitPerUser: 1, Price: admission.Money{Amount: "120", Currency: "CNY"}},
		},
		Fairness:    admission.Fairness{Mode: admission.FairnessRandom, DrawClosesBefore: 5 * time.Second},
		MaxAttempts: 1, PayWithin: 15 * time.Minute, PublishedAt: published,
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestDecodeActivityDefaults(t *testing.T) {
	const short = `{"activity_id":"1","activity_version":1,"name":"n","opens_at":"2026-11-11T00:00:00Z",
		"closes_at":"2026-11-12T00:00:00Z","skus":[{"sku_id":"2","name":"s","stock":1,"price":{"amount":"0","currency":"EUR"}}]%}`
	for _, c := range []struct {
		name, more string
		check      func(admission.Activity) bool
	}{
		{"nothing more", "", func(a admission.Activity) bool {
			return a.PathID == "" && a.MaxAttempts == 1 && a.PayWithin == 15*time.Minute && a.SKUs[0].LimitPerUser == 1 &&
				a.Fairness.Mode == admission.FairnessRandom && a.Fairness.DrawClosesBefore == 5*time.Second
		}},
		{"rebuying raises the attempts", `,"rebuy_after_cancel":true`, func(a admission.Activity) bool { return a.MaxAttempts == 3 }},
		{"unless they are given", `,"rebuy_after_cancel":true,"max_attempts":2`, func(a admission.Activity) bool { return a.MaxAttempts == 2 }},
		{"fifo has no draw", `,"fairness":{"mode":"fifo"}`, func(a admission.Activity) bool { return a.DrawClosesAt().Equal(a.OpensAt) }},
		{"a draw at the opening", `,"fairness":{"draw_closes_before":"0s"}`, func(a admission.Activity) bool { return a.DrawClosesAt().Equal(a.OpensAt) }},
		{"weights", `,"fairness":{"mode":"quota","weights":{"vip":0.25,"default":0.75}}`, func(a admission.Activity) bool {
			return a.Fairness.Weights["vip"] == 0.25 && a.Fairness.Weights["default"] == 0.75
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, faults := admission.DecodeActivity([]byte(strings.Replace(short, "%", c.more, 1)), published)
			if len(faults) > 0 || !c.check(a) {
				t.Fatalf("%v %+v", faults, a)
			}
		})
	}
}

func TestDecodeActivityReportsEveryFault(t *testing.T) {
	text, err := os.ReadFile("testdata/activity_busted.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(text), "\n== ")[1:] {
		lines := strings.Split(strings.TrimSpace(section), "\n")
		t.Run(lines[0], func(t *testing.T) {
			document, old := good(t), ""
			var want []string
			for _, line := range lines[1:] {
				switch {
				case strings.HasPrefix(line, "- "):
					if old = line[2:]; !strings.Contains(document, old) {
						t.Fatalf("the good document has no %s", old)
					}
				case strings.HasPrefix(line, "+"):
					document = strings.Replace(document, old, strings.TrimSpace(line[1:]), 1)
				default:
					want = append(want, line)
				}
			}
			_, faults := admission.DecodeActivity([]byte(document), published)
			var got []string
			for _, f := range faults {
				got = append(got, f.Error())
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestDecodeActivityRefusesWhatIsNotOneDocument(t *testing.T) {
	for name, c := range map[string]struct{ document, want string }{
		"nothing":      {"", "line 1, column 1: unexpected EOF"},
		"half":         {good(t)[:40], "unexpected EOF"},
		"two":          {good(t) + "{}", "line 17, column 2: something follows the document"},
		"rubbish":      {good(t) + "x", "line 17, column 1: something follows"},
		"BOM":          {"\ufeff" + good(t), "line 1, column 1: invalid character"},
		"null":         {"null", "must be an object, is a null"},
		"array":        {"[]", "must be an object, is a array"},
		"no UTF-8":     {"{\"name\":\"\xff\"}", "is not UTF-8"},
		"too long":     {strings.Repeat(" ", admission.MaxDocumentLen+1), "is longer than 65536 bytes"},
		"deep":         {strings.Repeat("[", 60000), "is nested too deeply"},
		"missing quot": {"{\n  \"name: 1}", "line 2, column"},
	} {
		t.Run(name, func(t *testing.T) {
			_, faults := admission.DecodeActivity([]byte(c.document), published)
			if len(faults) != 1 || faults[0].Path != "" || !strings.Contains(faults[0].Error(), c.want) {
				t.Fatalf("got %q, want %q", faults, c.want)
			}
		})
	}
}

func TestStoredActivityComesBack(t *testing.T) {
	a, faults := admission.DecodeActivity([]byte(good(t)), published)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	quota := a
	quota.Fairness = admission.Fairness{Mode: admission.FairnessQuota, DrawClosesBefore: 90 * time.Minute,
		Weights: map[string]float64{"vip": 1, "default": 2.5}, Beacon: "round <7>"}
	fifo := a
	fifo.Fairness = admission.Fairness{Mode: admission.FairnessFIFO}
	ended := a
	ended.Ended, ended.PathID, ended.RebuyAfterCancel, ended.MaxAttempts = true, "", true, 3
	ended.OpensAt = ended.OpensAt.Add(1 * time.Millisecond)
	for name, a := range map[string]admission.Activity{"random": a, "quota": quota, "fifo": fifo, "ended": ended} {
		t.Run(name, func(t *testing.T) {
			data := admission.EncodeActivity(a)
			back, err := admission.DecodeStoredActivity(data)
			if err != nil || !reflect.DeepEqual(back, a) {
				t.Fatalf("%v\ngot  %+v\nwant %+v\n%s", err, back, a, data)
			}
		})
	}
	if _, err := admission.DecodeStoredActivity([]byte(good(t))); err == nil || !strings.Contains(err.Error(), "published_at: is missing") {
		t.Fatalf("a stored document without published_at: %v", err)
	}
}

func FuzzDecodeActivity(f *testing.F) {
	f.Add([]byte(good(f)))
	f.Add([]byte(`{"activity_id":"1","activity_version":1,"name":"n","opens_at":"2026-11-11T00:00:00Z","closes_at":"2026-11-12T00:00:00Z",` +
		`"skus":[{"sku_id":"2","name":"s","stock":1,"price":{"amount":"0.0001","currency":"EUR"}}],"fairness":{"mode":"weighted","weights":{"a":1e-300}}}`))
	f.Add([]byte(`{"fairness":{"mode":"quota","weights":{"":1}},"skus":[null,{}],"name":"\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, faults := admission.DecodeActivity(data, published)
		if len(faults) > 0 {
			return
		}
		encoded := admission.EncodeActivity(a)
		back, err := admission.DecodeStoredActivity(encoded)
		if err != nil || !reflect.DeepEqual(back, a) {
			t.Fatalf("%v\n%+v\n%+v", err, a, back)
		}
	})
}

func TestMoney(t *testing.T) {
	for _, c := range []struct {
		amount string
		n      int64
		want   string
	}{
		{"9.90", 1, "9.90"}, {"9.90", 2, "19.80"}, {"120", 3, "360"}, {"0", 5, "0"}, {"0.0001", 1000, "0.1000"},
		{"99999999999.9999", 1000, "99999999999999.9000"}, {"0.05", 0, "0.00"},
		{"", 1, ""}, {"1.", 1, ""}, {".5", 1, ""}, {"01", 1, ""}, {"1.00000", 1, ""}, {"-1", 1, ""}, {"1e3", 1, ""}, {"١", 1, ""},
		{"100000000000", 1, ""}, {"1", -1, ""}, {"1", 1001, ""},
	} {
		if got := (admission.Money{Amount: c.amount, Currency: "CNY"}).Times(c.n); got.Amount != c.want || got.Currency != "CNY" {
			t.Errorf("%q x %d = %+v, want %q", c.amount, c.n, got, c.want)
		}
	}
	m := func(amount, currency string) admission.Money {
		return admission.Money{Amount: amount, Currency: currency}
	}
	for _, c := range []struct {
		a, b admission.Money
		want bool
	}{
		{m("19.80", "CNY"), m("19.8", "CNY"), true}, {m("19.80", "CNY"), m("19.81", "CNY"), false},
		{m("19.80", "CNY"), m("19.80", "EUR"), false}, {m("", "CNY"), m("", "CNY"), false}, {m("1", ""), m("1", ""), false},
		{m("99999999999999.9", "CNY"), m("99999999999999.9000", "CNY"), true},
	} {
		if got := c.a.Equal(c.b); got != c.want {
			t.Errorf("%v equal %v: %v", c.a, c.b, got)
		}
	}
}
