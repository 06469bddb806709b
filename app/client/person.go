package client

import "net/http"

// Person is who is calling. The zero value is nobody: enough for public documents.
type Person struct {
	UserID  string // canonical decimal
	Device  string // X-Device-Id, 16..128 of [A-Za-z0-9._:-]
	Session string // JWT, "" before signing in
	Address string // sent as X-Forwarded-For when set; believed only from a trusted peer
}

func (p Person) headers(h http.Header) {
	if p.Session != "" {
		h["Authorization"] = []string{"Bearer " + p.Session}
	}
	if p.Device != "" {
		h["X-Device-Id"] = []string{p.Device}
	}
	if p.Address != "" {
		h["X-Forwarded-For"] = []string{p.Address}
	}
}
