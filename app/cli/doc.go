// Package cli is the manners that every command shares.
//
// Wrong use (a flag, an argument or a subcommand that is none) is exit code 2 and names
// what was probably meant. A failure is words on standard error; with --json it is one JSON
// value on standard output instead, so that whoever asked for JSON never has to read words:
// standard output then holds exactly one value, whatever happened.
package cli
