// Package spelling finds the name that somebody meant who wrote another one.
package spelling

// longest is the length of what is compared: nobody meant a name by more.
const longest = 120

// Nearest returns the name that word was most likely meant to be, or "": one
// that has more letters right than wrong, and of several the first.
func Nearest(word string, names []string) string {
	if len(word) > longest {
		return ""
	}
	best, least := "", max(2, len(word)/4)+1
	for _, name := range names {
		if len(name) > longest {
			continue
		}
		if d := distance(word, name); d < least && 2*d < max(len(word), len(name)) {
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
