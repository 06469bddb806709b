// Command table measures every row of bench/rows, prints the table and writes
// bench/out/summary.json. It exits with 1 when a gate does not hold.
//
//	go run ./bench/table [-quick] [-only text] [-out file]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/sluice-io/sluice/bench/caller"
	"github.com/sluice-io/sluice/bench/pairs"
	"github.com/sluice-io/sluice/bench/rows"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == caller.Argument { // started by a row, see package caller
		if err := caller.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "caller:", err)
			os.Exit(2)
		}
		return
	}
	quick := flag.Bool("quick", false, "fewer and shorter pairs")
	only := flag.String("only", "", "only rows whose name contains this text")
	out := flag.String("out", "bench/out/summary.json", "where the summary goes")
	flag.Parse()

	plan := pairs.Full()
	if *quick {
		plan = pairs.Quick()
	}
	summary := pairs.Summary{Commit: commit(), Machine: machine(), Rows: []pairs.Result{}} // [] when all are left out
	for _, row := range rows.All() {
		if !strings.Contains(row.Name, *only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s\r\x1b[K", row.Name)
		if r, err := plan.Measure(row); err != nil {
			summary.LeftOut = append(summary.LeftOut, pairs.Absent{Name: row.Name, Why: err.Error()})
		} else {
			summary.Rows = append(summary.Rows, r)
		}
	}
	summary.Print(os.Stdout)
	if err := summary.Write(*out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !summary.OK() {
		os.Exit(1)
	}
}

// commit names the measured sources; "-dirty" if they differ from it.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), runtime.Version())
}
