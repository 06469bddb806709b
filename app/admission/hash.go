package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// DeviceHash is how a device is named everywhere behind the wire: "sha256:" and the
// hex SHA-256 of exactly the header's bytes. A device id is a personal identifier.
func DeviceHash(deviceID string) string {
	const prefix = "sha256:"
	sum := sha256.Sum256([]byte(deviceID))
	b := make([]byte, len(prefix)+2*len(sum))
	copy(b, prefix)
	hex.Encode(b[len(prefix):], sum[:])
	return string(b)
}

// BodyHash is the hex SHA-256 of activity|sku|user|quantity over canonical values
// (30-tickets). The separator cannot occur in any of them.
func BodyHash(activityID, skuID, userID string, quantity int64) string {
	b := make([]byte, 0, 4*(MaxDecimalLen+1))
	b = append(append(b, activityID...), '|')
	b = append(append(b, skuID...), '|')
	b = append(append(b, userID...), '|')
	b = strconv.AppendInt(b, quantity, 10)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
