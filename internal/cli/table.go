package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/text/width"

	"github.com/megaframework/mega/internal/plain"
)

// table is rows of cells whose columns are aligned by their displayed width: a
// Hangul letter is two columns wide.
type table struct {
	indent string
	rows   [][]string
}

// add adds a row. It escapes unprintable characters, so that text of another
// process cannot control the terminal.
func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = plain.Line(cell)
	}
	t.rows = append(t.rows, cells)
}

// print writes the rows, without spaces at the end of a line.
func (t *table) print(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(cell))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		line.WriteString(t.indent)
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-columns(cell)+2))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// columns returns the width of s on a terminal.
func columns(s string) (n int) {
	for _, r := range s {
		switch width.LookupRune(r).Kind() {
		case width.EastAsianWide, width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// short returns a duration in at most two units.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + short(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}
