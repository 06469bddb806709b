package ticket

import (
	"strconv"

	"github.com/sluice-io/sluice/app/admission"
)

const (
	maxNumber  = 1<<53 - 1             // the largest integer that survives JavaScript
	maxDecimal = "9223372036854775807" // 2^63-1

	devicePrefix = "sha256:"
	deviceHexLen = 64
)

// The alphabets of the texts in a payload, one bit each. None contains a quote, a backslash or a byte that
// JSON would escape, so no text has a second spelling.
const (
	digit = 1 << iota
	lowerHex
	idByte    // [A-Za-z0-9_-]
	keyIDByte // [A-Za-z0-9._-]
	laneByte  // [A-Za-z0-9._:-]
)

// alphabets says which alphabets a byte is in. It is never written after it is made.
var alphabets = makeAlphabets()

func makeAlphabets() (t [256]uint8) {
	add := func(bytes string, classes uint8) {
		for _, c := range []byte(bytes) {
			t[c] |= classes
		}
	}
	add("0123456789", digit|lowerHex|idByte|keyIDByte|laneByte)
	add("abcdef", lowerHex)
	add("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-", idByte|keyIDByte|laneByte)
	add(".", keyIDByte|laneByte)
	add(":", laneByte)
	return t
}

// A scanner reads one exact spelling from left to right. The first difference fails it for good; what its
// methods return after that is empty, and only end tells.
type scanner struct {
	rest   []byte
	failed bool
}

// literal takes exactly these bytes.
func (s *scanner) literal(want string) {
	if len(s.rest) < len(want) || string(s.rest[:len(want)]) != want {
		s.fail()
		return
	}
	s.rest = s.rest[len(want):]
}

// run takes the bytes up to the first that is outside the alphabet, and wants lo to hi of them.
func (s *scanner) run(alphabet uint8, lo, hi int) []byte {
	n := 0
	for n < len(s.rest) && alphabets[s.rest[n]]&alphabet != 0 {
		n++
	}
	if n < lo || n > hi {
		s.fail()
		return nil
	}
	text := s.rest[:n]
	s.rest = s.rest[n:]
	return text
}

// decimal takes an id: canonical, 1..2^63-1.
func (s *scanner) decimal() []byte {
	d := s.run(digit, 1, admission.MaxDecimalLen)
	if len(d) == 0 || d[0] == '0' || len(d) == len(maxDecimal) && string(d) > maxDecimal {
		s.fail()
		return nil
	}
	return d
}

// number takes a JSON integer in its shortest form, 0..2^53-1.
func (s *scanner) number() int64 {
	const most = 16 // digits; one more still fits an int64
	var n int64
	i := 0
	for i < len(s.rest) && i <= most && '0' <= s.rest[i] && s.rest[i] <= '9' {
		n = n*10 + int64(s.rest[i]-'0')
		i++
	}
	if i == 0 || i > most || s.rest[0] == '0' && i > 1 || n > maxNumber {
		s.fail()
		return 0
	}
	s.rest = s.rest[i:]
	return n
}

// id takes a path_id or a nonce.
func (s *scanner) id() []byte { return s.run(idByte, admission.MinIDLen, admission.MaxIDLen) }

func (s *scanner) lane() []byte { return s.run(laneByte, 1, MaxLaneLen) }

func (s *scanner) deviceHash() []byte {
	whole := s.rest
	s.literal(devicePrefix)
	s.run(lowerHex, deviceHexLen, deviceHexLen)
	return whole[:len(whole)-len(s.rest)]
}

// end reports whether everything was as wanted and nothing is left.
func (s *scanner) end() bool { return !s.failed && len(s.rest) == 0 }

func (s *scanner) fail() { s.failed, s.rest = true, nil }

func appendNumber(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// ValidLane reports whether s may name a lane of the waiting room.
func ValidLane(s string) bool {
	scan := scanner{rest: []byte(s)}
	scan.lane()
	return scan.end()
}
