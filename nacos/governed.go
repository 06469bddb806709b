package nacos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-io/sluice/app/admission"
	"github.com/sluice-io/sluice/rules"
)

// Read returns the document; admission.ErrNotFound when there is none.
func (s *Source) Read(ctx context.Context) ([]byte, error) { return s.api.read(ctx) }

// readBackFor is how long a published document may take to be read again.
const readBackFor = 3 * time.Second

// Publish replaces exactly previous by next. The server compares by md5, and for an absent
// key it does not compare at all: so after every publish the key is read until it shows next,
// and whoever does not find it there has lost: admission.ErrConflict.
func (s *Source) Publish(ctx context.Context, previous, next []byte) error {
	now, err := s.api.read(ctx)
	if err != nil && !errors.Is(err, admission.ErrNotFound) {
		return err
	}
	if err != nil && previous != nil || err == nil && !bytes.Equal(now, previous) {
		return fmt.Errorf("%s was changed meanwhile: %w", s.api.where(), admission.ErrConflict)
	}
	if err := s.api.publish(ctx, next, md5Of(previous)); err != nil {
		return err
	}
	return s.readBack(ctx, next)
}

func (s *Source) readBack(ctx context.Context, next []byte) error {
	ctx, cancel := context.WithTimeout(ctx, readBackFor)
	defer cancel()
	steady, other := 0, false // other: the last read that succeeded showed another document
	for {
		now, err := s.api.read(ctx)
		other = err == nil && !bytes.Equal(now, next) || err != nil && other
		switch {
		case err == nil && bytes.Equal(now, next):
			// Twice: of two first publishes both may see themselves for an instant.
			if steady++; steady == 2 {
				return nil
			}
		case ctx.Err() == nil:
			steady = 0
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			if err != nil && !other && !errors.Is(err, admission.ErrNotFound) { // our time may end within a read
				return fmt.Errorf("published, but not read back: %w", err)
			}
			return fmt.Errorf("another document won the first publish of %s: %w", s.api.where(), admission.ErrConflict)
		}
	}
}

// History lists the present document and what the server kept of the key, newest first.
//
// The server keeps one row per change: of a first publish the document itself, of a change or
// a deletion the document that it ended, each with the time and the user of the change. So
// when and by whom a document was published stands in the row before the one that ended it.
func (s *Source) History(ctx context.Context, limit int) ([]rules.Past, error) {
	rows, err := s.rows(ctx, limit+1)
	if err != nil {
		return nil, err
	}
	var list []rules.Past
	now, err := s.api.read(ctx)
	switch {
	case err == nil:
		list = append(list, published(now, rows))
	case !errors.Is(err, admission.ErrNotFound):
		return nil, err
	}
	for i, row := range rows {
		if !row.is("I") { // what it put there is told by the row that ended it, or is present
			list = append(list, published([]byte(row.Content), rows[i+1:]))
		}
	}
	return list[:min(limit, len(list))], nil
}

// published is a document that the newest of the rows put there; without one, when is forgotten.
func published(doc []byte, rows []historyItem) rules.Past {
	p := rules.Past{Raw: doc}
	if len(rows) > 0 && !rows[0].is("D") {
		p.At, p.By = rows[0].at(), rows[0].SrcUser
	}
	return p
}

// rows are the server's newest rows of the key, at most limit.
func (s *Source) rows(ctx context.Context, limit int) ([]historyItem, error) {
	params := s.api.key()
	params.Set("search", "accurate")
	params.Set("pageNo", "1")
	params.Set("pageSize", strconv.Itoa(limit))
	var page struct {
		PageItems []historyItem `json:"pageItems"`
	}
	if err := s.get(ctx, params, &page); err != nil {
		return nil, err
	}
	rows := make([]historyItem, len(page.PageItems))
	for i, item := range page.PageItems { // a page is without contents
		params := s.api.key()
		params.Set("nid", item.ID.String())
		if err := s.get(ctx, params, &rows[i]); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

type historyItem struct {
	ID               json.Number `json:"id"`
	Content          string      `json:"content"`
	SrcUser          string      `json:"srcUser"`
	OpType           string      `json:"opType"` // padded with blanks
	LastModifiedTime string      `json:"lastModifiedTime"`
}

// is reports whether the change was an insert (I), update (U) or deletion (D).
func (h historyItem) is(op string) bool { return strings.TrimSpace(h.OpType) == op }

// at reads the server's spelling of a time: RFC 3339, or with an offset without a colon.
func (h historyItem) at() time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000-0700"} {
		if t, err := time.Parse(layout, h.LastModifiedTime); err == nil {
			return t
		}
	}
	return time.Time{}
}

func (s *Source) get(ctx context.Context, params url.Values, into any) error {
	body, status, err := s.api.call(ctx, http.MethodGet, "/nacos/v1/cs/history", params, "")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return unexpected(status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("nacos history: %w", err)
	}
	return nil
}
