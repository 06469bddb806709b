package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-io/sluice/app/config"
	"github.com/sluice-io/sluice/app/console"
	"github.com/sluice-io/sluice/app/exit"
	"github.com/sluice-io/sluice/app/keys"
)

// keyring is every secret of the service, loaded.
type keyring struct {
	ticketFile  string // watched
	sessionFile string // watched
	nonce       keys.Key
	draw        keys.Key
	payment     []byte
	admin       console.Tokens
}

// Names of what an embedded service makes in its data directory.
const (
	adminTokenFile  = "admin.token"
	ticketKeysFile  = "ticket.keys.json"
	sessionKeysFile = "session.keys.json"
)

// loadKeys reads the key files; what an embedded service was not given it makes once,
// in its data directory, readable by its user alone. All that is wrong is told at once.
func loadKeys(c *config.Config) (*keyring, error) {
	k := &keyring{}
	var wrong []error
	note := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	var err error
	k.ticketFile, err = keyFile(c, "ticket.keys", c.TicketKeys, ticketKeysFile)
	note(err)
	k.sessionFile, err = keyFile(c, "session.keys", c.SessionKeys, sessionKeysFile)
	note(err)
	k.nonce, err = oneKey(c, "nonce.key", c.NonceKey, "nonce.key.json")
	note(err)
	k.draw, err = oneKey(c, "draw.key", c.DrawKey, "draw.key.json")
	note(err)
	payment, err := oneKey(c, "payment.key", c.PaymentKey, "payment.key.json")
	note(err)
	if err == nil {
		var ok bool
		if k.payment, ok = payment.Secret(); !ok {
			note(exit.Code(exit.Usage, errors.New("payment.key: must be an oct key: it signs with HMAC-SHA256")))
		}
	}
	k.admin, err = adminTokens(c)
	note(err)
	return k, errors.Join(wrong...)
}

// keyFile is the path of a key set, made when embedded and not given.
func keyFile(c *config.Config, setting, path, made string) (string, error) {
	if path == "" {
		path = filepath.Join(c.DataDir, made)
		if _, err := keys.LoadOrCreate(path, func() (keys.Key, error) { return keys.NewOct(setting) }); err != nil {
			return "", exit.Code(exit.Usage, fmt.Errorf("%s: %w", setting, err))
		}
		return path, nil
	}
	if _, err := keys.Load(path); err != nil {
		return "", exit.Code(exit.Usage, fmt.Errorf("%s: %w", setting, err))
	}
	return path, nil
}

func oneKey(c *config.Config, setting, path, made string) (keys.Key, error) {
	file, err := keyFile(c, setting, path, made)
	if err != nil {
		return keys.Key{}, err
	}
	set, err := keys.Load(file)
	if err != nil {
		return keys.Key{}, exit.Code(exit.Usage, fmt.Errorf("%s: %w", setting, err))
	}
	return set.First(), nil
}

// adminTokens reads the token hashes. An embedded service has one operator token, in
// plain text beside its data, so that the commands of this machine find it.
func adminTokens(c *config.Config) (console.Tokens, error) {
	if c.AdminTokens != "" {
		text, err := os.ReadFile(c.AdminTokens)
		if err != nil {
			return nil, exit.Code(exit.Usage, fmt.Errorf("admin.tokens: %w", err))
		}
		tokens, err := console.ParseTokens(string(text))
		if err != nil {
			return nil, exit.Code(exit.Usage, fmt.Errorf("admin.tokens: %s: %w", c.AdminTokens, err))
		}
		return tokens, nil
	}
	path := filepath.Join(c.DataDir, adminTokenFile)
	token, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		token = []byte("sluice_" + rand.Text())
		err = os.WriteFile(path, token, 0o600)
	}
	if err != nil {
		return nil, unusable(c.DataDir, err)
	}
	sum := sha256.Sum256(token)
	return console.ParseTokens("operator sha256:" + hex.EncodeToString(sum[:]))
}
