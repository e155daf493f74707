package plain

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"
)

// Table is rows of cells whose columns are aligned by their displayed width: a
// Hangul letter is two columns wide, a combining accent takes none.
type Table struct {
	Indent string // in front of each row
	Rows   [][]string
}

// Add adds a row. It escapes unprintable characters, so that text of another
// process cannot control the terminal.
func (t *Table) Add(cells ...string) {
	for i, cell := range cells {
		cells[i] = Line(cell)
	}
	t.Rows = append(t.Rows, cells)
}

// widest is the width of a cell up to which its column is padded.
const widest = 100

// Print writes the rows, without spaces at the end of a line. A cell that is wider
// than 100 columns pushes the rest of its row to the right, and no other row: the
// key of a foreign program may have kilobytes.
func (t *Table) Print(w io.Writer) {
	var widths []int
	for _, row := range t.Rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if n := columns(cell); n <= widest {
				widths[i] = max(widths[i], n)
			}
		}
	}
	for _, row := range t.Rows {
		var line strings.Builder
		line.WriteString(t.Indent)
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-columns(cell))+2))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// columns returns the width of s on a terminal.
func columns(s string) (n int) {
	for _, r := range s {
		if unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x1160 && r <= 0x11ff { // joins the letter before it
			continue
		}
		switch width.LookupRune(r).Kind() {
		case width.EastAsianWide, width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// Exact returns a duration without the zero units at its end: 25h in place of 25h0m0s.
func Exact(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Short returns a duration in at most two units.
func Short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Short(max(-d, -(d+1))) // the least duration has no opposite
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
