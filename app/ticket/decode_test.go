package ticket

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"testing"

	"pgregory.net/rapid"
)

// TestDecodeIsTheStandards: what decode takes is what the standard encoder writes, of every length, and
// nothing else, whichever byte is wrong.
func TestDecodeIsTheStandards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes")
		text := []byte(base64.RawURLEncoding.EncodeToString(want))
		got, ok := decode(make([]byte, len(want)), text)
		if !ok || !bytes.Equal(got, want) {
			t.Fatalf("%q: %x, %v; want %x", text, got, ok, want)
		}
		if len(text) == 0 {
			return
		}
		at, with := rapid.IntRange(0, len(text)-1).Draw(t, "at"), rapid.Byte().Draw(t, "with")
		text[at] = with
		got, ok = decode(make([]byte, len(want)), text)
		again := base64.RawURLEncoding.EncodeToString(got)
		if canonical := isCanonical(text); ok != canonical || ok && again != string(text) {
			t.Fatalf("%q: %v, %q; canonical %v", text, ok, again, canonical)
		}
	})
}

func isCanonical(text []byte) bool {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	return err == nil && base64.RawURLEncoding.EncodeToString(b) == string(text)
}

// TestABegunMACIsTheStandards ties it to crypto/hmac, for keys around the length of a block.
func TestABegunMACIsTheStandards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 32, 130).Draw(t, "key")
		header := rapid.StringN(0, 200, 200).Draw(t, "header")
		message := header + rapid.String().Draw(t, "rest")
		m, d := beginMAC(key, header), newDigest()
		std := hmac.New(sha256.New, key)
		std.Write([]byte(message))
		for range 2 { // a digest is used again and again
			if got, want := d.finish(&m, []byte(message)), std.Sum(nil); !bytes.Equal(got, want) {
				t.Fatalf("%x, want %x", got, want)
			}
		}
	})
}
