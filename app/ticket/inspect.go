package ticket

import "errors"

// Unverified is a ticket or pass as it describes itself, its signature not looked at: for people to read,
// never for a decision. Exactly one of Ticket and Pass is set.
type Unverified struct {
	KeyID  string
	Ticket *Claims
	Pass   *Pass
}

// Inspect reads a token without a key. It takes our spelling only, and an error says which part differs.
func Inspect(raw string) (Unverified, error) {
	var nobody ringState // no key is known, so find tells our header from any other
	for t := range tokenTypes {
		_, reason := nobody.find(t, raw)
		switch reason {
		case UnknownKey:
			return inspect(t, raw)
		case Missing:
			return Unverified{}, errors.New("inspect: empty")
		case TooLong:
			return Unverified{}, errors.New("inspect: longer than 1024 bytes")
		default: // not a header of this type
		}
	}
	return Unverified{}, errors.New("inspect: not header.payload.signature with the header of a ticket or pass")
}

func inspect(t tokenType, raw string) (Unverified, error) {
	header, text := split(raw)
	var buf [maxHeader]byte
	id, _ := headerKeyID(&buf, t, header)
	u := Unverified{KeyID: string(id)}
	payload, ok := decode(make([]byte, len(text)), []byte(text))
	if ok && t == typeTicket {
		var v ticketView
		v, ok = parseTicket(payload, ticketStart(u.KeyID))
		c := v.claims()
		u.Ticket = &c
	} else if ok {
		var p Pass
		p, ok = parsePass(payload, u.KeyID)
		u.Pass = &p
	}
	if !ok {
		return Unverified{}, errors.New("inspect: the payload is not what our encoder writes")
	}
	return u, nil
}
