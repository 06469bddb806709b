package demo

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// reporter returns what shows progress: a bar on a terminal, a plain line every two seconds elsewhere.
func reporter(to io.Writer, stock int64, getenv func(string) string) (show func(Progress), done func()) {
	if !terminal(to) || getenv("TERM") == "dumb" {
		return func(p Progress) { fmt.Fprintln(to, line(p)) }, func() {}
	}
	theme := progressbar.ThemeUnicode
	bar := progressbar.NewOptions64(stock,
		progressbar.OptionSetWriter(to), progressbar.OptionSetWidth(24), progressbar.OptionSetTheme(theme),
		progressbar.OptionEnableColorCodes(getenv("NO_COLOR") == ""), progressbar.OptionUseANSICodes(true),
		progressbar.OptionSetPredictTime(false), progressbar.OptionThrottle(100*time.Millisecond),
	)
	show = func(p Progress) {
		bar.Describe(short(p))
		_ = bar.Set64(min(p.Reserved, stock)) // a bar that cannot be drawn must not end the sale
	}
	return show, func() { _ = bar.Exit(); fmt.Fprintln(to) }
}

func line(p Progress) string {
	return fmt.Sprintf("%5.1fs  %-9s joined %d/%d  released %d  tickets %d  reserved %d/%d  ordered %d  sold-out %d  left %d  refused %d  network faults %d",
		p.Elapsed.Seconds(), orElse(p.State, "-"), p.Joined, p.Users, p.Released, p.Tickets, p.Reserved, p.Stock, p.Ordered, p.SoldOut, p.Left, p.Refused, p.Faulted)
}

func short(p Progress) string {
	return fmt.Sprintf("%-9s joined %d  tickets %d  sold", orElse(p.State, "-"), p.Joined, p.Tickets)
}

// terminal reports whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
