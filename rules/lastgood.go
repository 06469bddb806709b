package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// lastGood is the last document that was applied, on disk, so that an instance can start
// while its source is away. A torn or edited file is as good as none: the checksum tells. So is
// one of another source: versions of two sources have no order.
type lastGood struct {
	Checksum  string    `json:"checksum"` // sha256 of document and time
	Confirmed time.Time `json:"confirmed"`
	Source    string    `json:"source"` // Config.Origin of the applier that wrote it
	Document  string    `json:"document"`
}

func (l *lastGood) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s", l.Confirmed.UTC().Format(time.RFC3339Nano), l.Source, l.Document)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// saveLastGood replaces the file atomically and durably.
func saveLastGood(path string, doc []byte, source string, confirmed time.Time) error {
	l := lastGood{Confirmed: confirmed.UTC(), Source: source, Document: string(doc)}
	l.Checksum = l.sum()
	out, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return writeFile(path, append(out, '\n'))
}

// readLastGood returns nil when there is none.
func readLastGood(path string) (*lastGood, error) {
	in, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("last good rules: %w", err)
	}
	var l lastGood
	if err := json.Unmarshal(in, &l); err != nil {
		return nil, fmt.Errorf("last good rules %s: %w", path, err)
	}
	if l.Checksum != l.sum() {
		return nil, fmt.Errorf("last good rules %s: the checksum does not match", path)
	}
	return &l, nil
}

// writeFile replaces path by content: a temporary file beside it, synced, renamed, and the
// folder synced, so that after a crash it is the old content or the new, never a part.
func writeFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing once renamed
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// LastGoodUsable reports whether an instance could start from that file now, with its source
// away: the file is whole, of that origin, still valid, and younger than its own max_stale_ms.
func LastGoodUsable(path, origin string, now time.Time) bool {
	last, err := readLastGood(path)
	if err != nil || last == nil || last.Source != origin {
		return false
	}
	doc, _, err := Decode([]byte(last.Document))
	return err == nil && now.Sub(last.Confirmed) <= Compile(doc).Overload.MaxStale
}
