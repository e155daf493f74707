package config

import (
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Code   string // "config.unknown_key"
	Key    string // "lock.ttl"; empty where no key is meant
	Origin Origin // what set it
	Text   string
	Hint   string // what to do about it, where that is known
}

// subject is what the problem is about, in the words of whoever set it.
func (p Problem) subject() string {
	if p.Origin.Name != "" {
		return p.Origin.Name
	}
	return p.Key
}

// String is one line: MEGA_LOCK_TTL: "5" has no unit (write 5s or 5ms).
func (p Problem) String() string {
	s := p.subject() + ": " + p.Text
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Problems is everything that is wrong with a configuration.
type Problems []Problem

// Error lists the problems, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Code returns the code of the first problem.
func (p Problems) Code() string { return p[0].Code }

func quote(s string) string { return strconv.Quote(s) }

// nearest returns the candidate that s was most likely meant to be, or "".
func nearest(s string, candidates []string) string {
	best, least := "", max(2, len(s)/4)+1
	for _, c := range candidates {
		if d := distance(s, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to turn a into b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			rows[i][j] = step(rows, a, b, i, j)
		}
	}
	return rows[len(a)][len(b)]
}

func step(rows [][]int, a, b string, i, j int) int {
	replace := rows[i-1][j-1]
	if a[i-1] != b[j-1] {
		replace++
	}
	d := min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
	if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
		d = min(d, rows[i-2][j-2]+1)
	}
	return d
}
