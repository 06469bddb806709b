// Package lua holds the Redis scripts, one file each, so that they can be read, run
// by hand and measured without Go.
//
// Every script begins with a header that says what its keys and arguments are, what
// it returns, what it costs, which clock it uses and what happens when its reply or
// its write is lost. It checks the number of its arguments and the type of every key that
// it uses (BADARGS, WRONGTYPE), so that a refusal leaves nothing written. Ids
// stay strings: a Lua number loses digits beyond 2^53. Replies are arrays, or words divided
// by '|' where an array would cost too much.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Source returns the text of <name>.lua. It panics when there is none: names are constants.
func Source(name string) string {
	b, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic("lua: no script " + name)
	}
	return string(b)
}

// Names lists the scripts, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("lua: " + err.Error()) // the files are part of the program
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".lua"))
	}
	return names
}
