//go:build linux || darwin

package guide_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pagetest "github.com/megaframework/mega/internal/testkit/page"
)

const workersPage = "08-workers.md"

// The page's shop has two workers from the beginning to the end.
func TestConsoleOfThePageOnWorkers(t *testing.T) {
	c := newConsole(t, "withWorkers", pagetest.Blocks(read(t, workersPage), "yaml")[0].Text)
	for began := time.Now(); strings.Count(c.log(), "worker ready") < 2; time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("one is ready, the other is not:\n%s", c.log())
		}
	}
	if tried := c.typed(workersPage, whole); tried < 5 {
		t.Errorf("only %d lines were tried", tried)
	}
}

// pids are those of workers, in the order in which they are met: the page calls
// them 4150 and so on.
type pids []string

const firstPID = 4150

// named is how a pid is told in the log and in the list of workers.
var named = regexp.MustCompile(`worker=\d+ pid=(\d+)|(?m:^  \d  +(\d+)  )`)

// shown is a text with the page's pids in it.
func (p *pids) shown(text string) string {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if pid := m[1] + m[2]; !slices.Contains(*p, pid) {
			*p = append(*p, pid)
		}
	}
	for i, pid := range *p {
		text = regexp.MustCompile(`\b`+pid+`\b`).ReplaceAllString(text, strconv.Itoa(firstPID+i))
	}
	return text
}

// real is a line of the page with the pids that it means.
func (p *pids) real(typed string) string {
	for i, pid := range *p {
		typed = strings.ReplaceAll(typed, strconv.Itoa(firstPID+i), pid)
	}
	return typed
}
