package admission

import "math"

// Bounds of what comes from outside.
const (
	MinIDLen       = 8   // request_id, nonce, path_id
	MaxIDLen       = 64  //
	MinDeviceIDLen = 16  // X-Device-Id
	MaxDeviceIDLen = 128 //
	MaxDecimalLen  = 19  // digits of 2^63-1
)

// ValidID reports whether s is a request_id, nonce or path_id: [A-Za-z0-9_-]{8,64}.
// The alphabet leaves out everything that two programs could normalise differently.
func ValidID(s string) bool {
	if len(s) < MinIDLen || len(s) > MaxIDLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !alnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// ValidDeviceID reports whether s is an X-Device-Id: 16..128 of [A-Za-z0-9._:-].
func ValidDeviceID(s string) bool {
	if len(s) < MinDeviceIDLen || len(s) > MaxDeviceIDLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

// ValidDecimal reports whether s is a user, activity, SKU or order id: a canonical
// decimal (no sign, no leading zero) in 1..2^63-1. Ids stay strings everywhere: a
// 64-bit number loses digits in JavaScript and in Lua.
func ValidDecimal(s string) bool {
	_, ok := ParseDecimal(s)
	return ok
}

// ParseDecimal is ValidDecimal with the value, for databases that store a bigint.
func ParseDecimal(s string) (int64, bool) {
	if len(s) == 0 || len(s) > MaxDecimalLen || s[0] == '0' {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

func alnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
