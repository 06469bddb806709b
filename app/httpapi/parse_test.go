package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-io/sluice/app/admission"
)

// badBodies are bodies that are refused, each with the field that the answer names.
var badBodies = []struct{ name, body, field string }{
	{"nothing", ``, ""},
	{"blank", `   `, ""},
	{"null", `null`, ""},
	{"array", `[]`, ""},
	{"array of a good one", `[` + goodBody + `]`, ""},
	{"string", `"x"`, ""},
	{"number", `1`, ""},
	{"no members", `{}`, "request_id"},
	{"open", goodBody[:len(goodBody)-1], ""},
	{"two objects", goodBody + `{}`, ""},
	{"trailing text", goodBody + `xyz`, ""},
	{"trailing NUL", goodBody + "\x00", ""},
	{"trailing comma", strings.Replace(goodBody, `:1}`, `:1,}`, 1), ""},
	{"leading comma", strings.Replace(goodBody, `{`, `{,`, 1), ""},
	{"no comma", strings.Replace(goodBody, `,"sku`, ` "sku`, 1), ""},
	{"no colon", strings.Replace(goodBody, `:`, ` `, 1), ""},
	{"single quotes", strings.ReplaceAll(goodBody, `"`, `'`), ""},
	{"comment", `/**/` + goodBody, ""},
	{"byte order mark", "\xef\xbb\xbf" + goodBody, ""},
	{"UTF-16", "\xff\xfe{\x00", ""},
	{"vertical tab", "\v" + goodBody, ""},
	{"non-breaking space", "\u00a0" + goodBody, ""},
	{"unknown member", strings.Replace(goodBody, `{`, `{"x":1,`, 1), ""},
	{"a user", strings.Replace(goodBody, `{`, `{"user_id":"70000001",`, 1), ""},
	{"user null", strings.Replace(goodBody, `{`, `{"user_id":null,`, 1), ""},
	{"folded member", strings.Replace(goodBody, `sku_id`, `SKU_ID`, 1), ""},
	{"escaped member", strings.Replace(goodBody, `sku_id`, `sku_i\u0064`, 1), ""},
	{"empty member", strings.Replace(goodBody, `sku_id`, ``, 1), ""},
	{"twice the same", strings.Replace(goodBody, `{`, `{"quantity":1,`, 1), "quantity"},
	{"twice another", strings.Replace(goodBody, `{`, `{"sku_id":"90002",`, 1), "sku_id"},
	{"missing request_id", `{"activity_id":"10001","sku_id":"90001","quantity":1}`, "request_id"},
	{"missing activity_id", `{"request_id":"request-00000001","sku_id":"90001","quantity":1}`, "activity_id"},
	{"missing sku_id", `{"request_id":"request-00000001","activity_id":"10001","quantity":1}`, "sku_id"},
	{"missing quantity", `{"request_id":"request-00000001","activity_id":"10001","sku_id":"90001"}`, "quantity"},
	{"request_id null", strings.Replace(goodBody, `"request-00000001"`, `null`, 1), "request_id"},
	{"request_id escaped", strings.Replace(goodBody, `request-`, `request\u002d`, 1), "request_id"},
	{"request_id blank before", strings.Replace(goodBody, `"request-`, `" request-`, 1), "request_id"},
	{"request_id zero-width", strings.Replace(goodBody, `request-`, "request-\u200b", 1), "request_id"},
	{"request_id newline", strings.Replace(goodBody, `request-`, "request-\n", 1), "request_id"},
	{"request_id DEL", strings.Replace(goodBody, `request-`, "request-\x7f", 1), "request_id"},
	{"another request_id", strings.Replace(goodBody, `00000001"`, `00000002"`, 1), "request_id"},
	{"activity a number", strings.Replace(goodBody, `"10001"`, `10001`, 1), "activity_id"},
	{"another activity", strings.Replace(goodBody, `"10001"`, `"10002"`, 1), "activity_id"},
	{"activity 2^63", strings.Replace(goodBody, `"10001"`, `"9223372036854775808"`, 1), "activity_id"},
	{"activity leading zero", strings.Replace(goodBody, `"10001"`, `"010001"`, 1), "activity_id"},
	{"SKU a number", strings.Replace(goodBody, `"90001"`, `90001`, 1), "sku_id"},
	{"SKU 2^53+1", strings.Replace(goodBody, `"90001"`, `"9007199254740993"`, 1), "sku_id"},
	{"SKU an object", strings.Replace(goodBody, `"90001"`, `{}`, 1), "sku_id"},
	{"SKU an array", strings.Replace(goodBody, `"90001"`, `["90001"]`, 1), "sku_id"},
	{"quantity 0", strings.Replace(goodBody, `:1}`, `:0}`, 1), "quantity"},
	{"quantity -0", strings.Replace(goodBody, `:1}`, `:-0}`, 1), "quantity"},
	{"quantity -1", strings.Replace(goodBody, `:1}`, `:-1}`, 1), "quantity"},
	{"quantity +1", strings.Replace(goodBody, `:1}`, `:+1}`, 1), "quantity"},
	{"quantity 01", strings.Replace(goodBody, `:1}`, `:01}`, 1), "quantity"},
	{"quantity 1.0", strings.Replace(goodBody, `:1}`, `:1.0}`, 1), "quantity"},
	{"quantity 1e0", strings.Replace(goodBody, `:1}`, `:1e0}`, 1), "quantity"},
	{"quantity 1E3", strings.Replace(goodBody, `:1}`, `:1E3}`, 1), "quantity"},
	{"quantity 0x1", strings.Replace(goodBody, `:1}`, `:0x1}`, 1), "quantity"},
	{"quantity 3, one over the limit", strings.Replace(goodBody, `:1}`, `:3}`, 1), "quantity"},
	{"quantity 2^31", strings.Replace(goodBody, `:1}`, `:2147483648}`, 1), "quantity"},
	{"quantity 2^64+1", strings.Replace(goodBody, `:1}`, `:18446744073709551617}`, 1), "quantity"},
	{"quantity a string", strings.Replace(goodBody, `:1}`, `:"1"}`, 1), "quantity"},
	{"quantity null", strings.Replace(goodBody, `:1}`, `:null}`, 1), "quantity"},
	{"quantity true", strings.Replace(goodBody, `:1}`, `:true}`, 1), "quantity"},
	{"quantity nothing", strings.Replace(goodBody, `:1}`, `:}`, 1), "quantity"},
	{"deep", strings.Repeat(`{"a":`, 1500), ""},
}

// TestH02BadBodies: each is a 400 that names its field, and nothing behind the parser is asked.
func TestH02BadBodies(t *testing.T) {
	for _, c := range badBodies {
		b := newBed(t)
		g := b.send(t, "POST", submitPath, c.body)
		if g.HTTP != 400 || g.str("code") != "INVALID_ARGUMENT" || g.str("field") != c.field || g.str("detail") == "" {
			t.Errorf("%s: %d %s, want 400 INVALID_ARGUMENT for field %q", c.name, g.HTTP, g.Body, c.field)
		}
		if asked := b.asked(); asked != "enter" {
			t.Errorf("%s: asked %q, want only the first chain", c.name, asked)
		}
		if len(b.ended) == 0 || b.ended[len(b.ended)-1] != admission.InvalidArgument {
			t.Errorf("%s: ended with %v, so the attempt may have been refunded", c.name, b.ended)
		}
	}
}

// TestGoodBodies: order and white space are free, large ids keep every digit.
func TestGoodBodies(t *testing.T) {
	b := newBed(t)
	for _, body := range []string{
		goodBody,
		" \t\r\n" + strings.ReplaceAll(strings.ReplaceAll(goodBody, ":", " : "), ",", "\n,\t") + "\n",
		`{"quantity":2,"sku_id":"90001","activity_id":"10001","request_id":"request-00000001"}`,
	} {
		if g := b.send(t, "POST", submitPath, body); g.str("code") != "SECKILL_QUEUED" {
			t.Errorf("%s: %s", body, g.Body)
		}
	}
	const big = "9007199254740993" // 2^53 + 1
	b.act.SKUs[0].ID = big
	if g := b.send(t, "POST", "/s/"+goodPath+"/"+big, strings.Replace(goodBody, "90001", big, 1)); g.str("code") != "SECKILL_QUEUED" {
		t.Errorf("SKU %s: %s", big, g.Body)
	}
	if g := b.send(t, "POST", "/s/"+goodPath+"/"+big, strings.Replace(goodBody, "90001", "9007199254740992", 1)); g.str("field") != "sku_id" {
		t.Errorf("its neighbour: %s", g.Body)
	}
}

// FuzzParseSubmit: whatever the parser accepts, encoding/json accepts too and reads the
// same; the order in which names come does not matter; nothing makes it panic.
func FuzzParseSubmit(f *testing.F) {
	f.Add([]byte(goodBody))
	for _, c := range badBodies {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, bad := parseSubmit(body)
		if bad != nil {
			if bad.Error() == "" {
				t.Error("a refusal without words")
			}
			return
		}
		var want struct {
			RequestID  *string `json:"request_id"`
			ActivityID *string `json:"activity_id"`
			SKUID      *string `json:"sku_id"`
			Quantity   *int64  `json:"quantity"`
		}
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", body, err)
		}
		if dec.More() || want.RequestID == nil || want.ActivityID == nil || want.SKUID == nil || want.Quantity == nil {
			t.Fatalf("accepted %q, which is not one whole object", body)
		}
		if string(got.RequestID) != *want.RequestID || string(got.ActivityID) != *want.ActivityID || string(got.SKUID) != *want.SKUID || got.Quantity != *want.Quantity {
			t.Fatalf("read %+v from %q, encoding/json reads %+v", got, body, want)
		}
		if got.Quantity < 1 {
			t.Fatalf("quantity %d", got.Quantity)
		}
	})
}

// TestParseAllocatesNothing: the hottest parser there is.
func TestParseAllocatesNothing(t *testing.T) {
	body := []byte(goodBody)
	if n := testing.AllocsPerRun(100, func() {
		if _, bad := parseSubmit(body); bad != nil {
			t.Fatal(bad)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
