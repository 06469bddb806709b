package rules_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-io/sluice/adapters/conformance"
	"github.com/sluice-io/sluice/rules"
)

func TestFileSource(t *testing.T) {
	for name, write := range map[string]func(*testing.T, string, []byte){"Rename": renameOver, "InPlace": writeInto} {
		t.Run(name, func(t *testing.T) {
			conformance.Sources(t, func(t *testing.T) conformance.SourceBackend { return fileBackend(t, write) })
		})
	}
}

func TestFileSourcePushToEffect(t *testing.T) {
	const rounds = 3 // others may hold the machine up once or twice
	for round := 1; ; round++ {
		took := conformance.PushToEffect(t, fileBackend(t, renameOver), 5)
		most := took[len(took)-1]
		t.Logf("min %v median %v max %v", took[0], took[len(took)/2], most)
		if most <= time.Second {
			return
		}
		if round == rounds {
			t.Fatalf("a push took %v, and in each of %d rounds one more than a second", most, rounds)
		}
	}
}

func TestFileSourceWritesDefaultsWhenAbsent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "rules.json")
	b := newBench(t, nil)
	src := &rules.FileSource{Path: path, Create: rules.DefaultDocument()}
	runUntil(t, b, src, func() bool { return b.Snapshot() != nil })
	if b.Snapshot() == nil || b.Snapshot().Version != 1 {
		t.Fatal("no rules in force")
	}
	kept, err := os.ReadFile(path)
	if err != nil || string(kept) != string(rules.DefaultDocument()) {
		t.Fatalf("the file holds %q, %v", kept, err)
	}
}

// A system that grants no watch, here for want of the folder, leaves the poll: Run goes on,
// or the whole process would end.
func TestFileSourceWithoutAWatchPolls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later", "rules.json")
	src := &rules.FileSource{Path: path, PollEvery: 10 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a failed test only
	defer cancel()
	var got []rules.Update
	err := src.Run(ctx, func(u rules.Update) {
		if got = append(got, u); len(got) == 1 {
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Error(err)
			}
			renameOver(t, path, rules.DefaultDocument())
		}
		if u.Raw != nil {
			cancel()
		}
	})
	if last := got[len(got)-1]; err != nil || !got[0].Absent || string(last.Raw) != string(rules.DefaultDocument()) {
		t.Errorf("ended with %v after %d updates, the first absent: %t, the last %q, %v", err, len(got), got[0].Absent, last.Raw, last.Err)
	}
}

func fileBackend(t *testing.T, write func(*testing.T, string, []byte)) conformance.SourceBackend {
	path := filepath.Join(t.TempDir(), "rules.json")
	return conformance.SourceBackend{
		Source: &rules.FileSource{Path: path, PollEvery: 500 * time.Millisecond},
		Write:  func(t *testing.T, doc []byte) { write(t, path, doc) },
		Remove: func(t *testing.T) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func writeInto(t *testing.T, path string, doc []byte) {
	if err := os.WriteFile(path, doc, 0o644); err != nil {
		t.Fatal(err)
	}
}

func renameOver(t *testing.T, path string, doc []byte) {
	writeInto(t, path+".new", doc)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// The first push finds a document that no push wrote: a rollback must find it too. The history
// begins with the present document, also when a hand wrote it over what was pushed.
func TestFileSourceRemembersWhatAFirstPushReplaces(t *testing.T) {
	src := &rules.FileSource{Path: filepath.Join(t.TempDir(), "rules.json")}
	first, second, byHand := doc(1), doc(2), doc(3)
	renameOver(t, src.Path, first)
	history := func(want ...[]byte) []rules.Past {
		t.Helper()
		list, err := src.History(t.Context(), 10)
		if err != nil || len(list) != len(want) {
			t.Fatalf("%d documents, %v; want %d", len(list), err, len(want))
		}
		for i, p := range list {
			if string(p.Raw) != string(want[i]) || p.At.IsZero() || i > 0 && !p.At.Before(list[i-1].At) {
				t.Errorf("number %d is %s of %v, want %s", i, p.Raw, p.At, want[i])
			}
		}
		return list
	}
	history(first)
	if err := src.Publish(t.Context(), first, second); err != nil {
		t.Fatal(err)
	}
	if list := history(second, first); list[0].By == "" || list[1].By != "" {
		t.Errorf("by %q and %q, want who published, and nobody", list[0].By, list[1].By)
	}
	renameOver(t, src.Path, byHand)
	if err := os.Chtimes(src.Path, time.Time{}, time.Unix(1, 0)); err != nil { // an old file, moved here
		t.Fatal(err)
	}
	history(byHand, second, first)
	if err := src.Publish(t.Context(), byHand, doc(4)); err != nil {
		t.Fatal(err)
	}
	history(doc(4), byHand, second, first)
}
