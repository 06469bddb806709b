package ticket

import "github.com/sluice-io/sluice/app/admission"

// Reason is why a ticket or pass was or was not accepted: a closed set, and so a metric label. A new one
// needs a row in reasons, and a case in the table of TestEveryReason.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	OK            Reason = iota
	Missing              // no ticket at all
	TooLong              // over 1,024 bytes
	Format               // not three parts, or a header that is not ours in our spelling
	UnknownKey           // our header, but a key id that is not in the ring
	Signature            // wrong MAC, or the right one in another spelling
	Payload              // signed, but not the JSON that our encoder writes
	NotYet               // before not_before, beyond the skew allowance
	Expired              // after expires_at, beyond the skew allowance
	OtherActivity        // binding: for another activity
	OtherSKU             //
	OtherUser            //
	VersionBehind        // of the activity's last version: ask again
	VersionOld           // of an older one
	VersionAhead         // of one that this instance has not seen
	OtherPath            //
	OtherDevice          //

	Reasons // how many there are
)

type reasonRow struct {
	label   string
	outcome admission.Outcome
}

// reasons gives each reason its label and its answer. "Out of time" covers both ends of a ticket's life:
// its holder asks for a new one, where TOKEN_INVALID would tell an honest shopper to stop.
var reasons = [Reasons]reasonRow{
	OK:            {"ok", admission.Pass},
	Missing:       {"missing", admission.TokenInvalid},
	TooLong:       {"too_long", admission.TokenInvalid},
	Format:        {"format", admission.TokenInvalid},
	UnknownKey:    {"unknown_key", admission.TokenInvalid},
	Signature:     {"signature", admission.TokenInvalid},
	Payload:       {"payload", admission.TokenInvalid},
	NotYet:        {"not_yet", admission.TokenExpired},
	Expired:       {"expired", admission.TokenExpired},
	OtherActivity: {"activity", admission.TokenInvalid},
	OtherSKU:      {"sku", admission.TokenInvalid},
	OtherUser:     {"user", admission.TokenInvalid},
	VersionBehind: {"version_behind", admission.TokenExpired},
	VersionOld:    {"version_old", admission.TokenInvalid},
	VersionAhead:  {"version_ahead", admission.TokenInvalid},
	OtherPath:     {"path", admission.TokenInvalid},
	OtherDevice:   {"device", admission.TokenInvalid},
}

// String is the reason as a metric label.
func (r Reason) String() string {
	if r >= Reasons {
		return "format"
	}
	return reasons[r].label
}

// Outcome is what the caller is told: Pass, TokenInvalid or TokenExpired. An unknown reason refuses.
func (r Reason) Outcome() admission.Outcome {
	if r >= Reasons {
		return admission.TokenInvalid
	}
	return reasons[r].outcome
}
