package plain_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/plain"
)

func TestColumnsAreAlignedAsTheyAreSeen(t *testing.T) {
	var table plain.Table
	table.Add("KEY", "HOLDER", "HELD")
	table.Add("상품:1", "web", "1.2s")
	table.Add("product:lamp", "", "")
	table.Add("cafe\u0301:1", "web", "") // its accent and the Hangul below are decomposed
	table.Add("\u1109\u1161\u11bc\u1111\u116e\u11b7:2", "web", "")
	var b strings.Builder
	table.Print(&b)
	const want = "" +
		"KEY           HOLDER  HELD\n" +
		"상품:1        web     1.2s\n" +
		"product:lamp\n" +
		"cafe\u0301:1        web\n" +
		"\u1109\u1161\u11bc\u1111\u116e\u11b7:2        web\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

func TestWideCellDoesNotWidenOtherRows(t *testing.T) {
	var table plain.Table
	long := strings.Repeat("k", 4096)
	table.Add("KEY", "HELD", "LABEL")
	table.Add(long, "1s", "a")
	table.Add("product:1", "2s", "b")
	var b strings.Builder
	table.Print(&b)
	want := "KEY        HELD  LABEL\n" + long + "  1s    a\n" + "product:1  2s    b\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

func TestForeignTextCannotControlTheTerminal(t *testing.T) {
	var table plain.Table
	table.Add("KEY", "LABEL")
	table.Add("k\u202e", "a\x1b[31m\nb\tc\xff \"d\" \\")
	var b strings.Builder
	table.Print(&b)
	const want = "KEY      LABEL\n" + `k\u202e  a\u001b[31m\nb\tc\xff "d" \` + "\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0µs", 950 * time.Microsecond: "950µs", 12 * time.Millisecond: "12ms", 999 * time.Millisecond: "999ms",
		1290 * time.Millisecond: "1.2s", 9999 * time.Millisecond: "9.9s", 10 * time.Second: "10s", 59900 * time.Millisecond: "59s",
		61 * time.Second: "1m01s", 2*time.Hour + 5*time.Minute: "2h05m", 49 * time.Hour: "2d01h", -1500 * time.Millisecond: "-1.5s",
		math.MinInt64: "-106751d23h", // of another process; the difference of far times, too
	} {
		if got := plain.Short(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestExactDurationsHaveNoZerosAtTheirEnd(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 25 * time.Hour: "25h",
		90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 800 * time.Millisecond: "800ms", -time.Hour: "-1h",
	} {
		if got := plain.Exact(d); got != want {
			t.Errorf("Exact(%v) = %q, want %q", d, got, want)
		}
	}
}
