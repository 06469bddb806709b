package lua

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// Every script opens with the header that package doc promises, and refuses a wrong
// number of arguments before its first command.
func TestHeaders(t *testing.T) {
	names, err := fs.Glob(files, "*.lua")
	if err != nil || len(names) == 0 {
		t.Fatalf("scripts: %v, %v", names, err)
	}
	for _, file := range names {
		name := strings.TrimSuffix(file, ".lua")
		t.Run(name, func(t *testing.T) {
			source := Source(name)
			header, body := split(source)
			if !regexp.MustCompile(`^-- ` + name + `  v[1-9]\d*\n`).MatchString(header) {
				t.Errorf("the first line is not `-- %s  v<number>`", name)
			}
			for _, want := range []string{"-- KEYS[1", "-- ARGV", "-- returns ", "-- cost ", "-- clock ", "-- on loss "} {
				if !strings.Contains(header, "\n"+want) {
					t.Errorf("the header has no line %q", want)
				}
			}
			before, _, _ := strings.Cut(body, "redis.call(")
			if !strings.Contains(before, "#KEYS ~= ") && !strings.Contains(before, "#KEYS < ") || !strings.Contains(before, "#ARGV") {
				t.Error("KEYS and ARGV are not counted before the first command")
			}
			if !strings.Contains(before, "'BADARGS "+name) && !strings.Contains(before, "return {-1,") {
				t.Errorf("a wrong number is not refused, by BADARGS %s or by code -1", name)
			}
			body = regexp.MustCompile(`--[^\n]*`).ReplaceAllString(body, "")
			if strings.Contains(body, "'DEL'") || strings.Contains(body, "while ") || strings.Contains(body, "'KEYS'") {
				t.Error("a script deletes nothing large and loops over nothing unbounded")
			}
		})
	}
}

func split(source string) (header, body string) {
	lines := strings.SplitAfter(source, "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "--") {
			return strings.Join(lines[:i], ""), strings.Join(lines[i:], "")
		}
	}
	return source, ""
}

func TestUnknownNamePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("want a panic")
		}
	}()
	Source("no_such_script")
}
