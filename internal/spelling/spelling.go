// Package spelling suggests the known name that a misspelled one most likely
// stands for.
package spelling

import "strings"

// longest is the maximum length of a word that is compared. A longer one is not a
// misspelled name.
const longest = 120

// Nearest returns the name that is most similar to word, and of several the
// first, or "" if none is similar. A similar name differs in at most a quarter of
// the letters of word, or two letters, and in fewer than half. The case of the
// letters makes no difference.
func Nearest(word string, names []string) string {
	if len(word) > longest {
		return ""
	}
	lower := strings.ToLower(word)
	best, least := "", max(2, len(word)/4)+1
	for _, name := range names {
		if len(name) > longest {
			continue
		}
		if d := distance(lower, strings.ToLower(name)); d < least && 2*d < max(len(word), len(name)) {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to turn a into b.
func distance(a, b string) int {
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			next[j] = min(last[j]+1, next[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
