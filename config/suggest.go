package config

import (
	"slices"
	"strings"
)

// longest is the length of what is compared: nobody meant a key by more.
const longest = 120

// nearest returns the candidate that s was most likely meant to be, or "".
func nearest(s string, candidates []string) string {
	if len(s) > longest {
		return ""
	}
	best, least := "", max(2, len(s)/4)+1
	for _, c := range candidates {
		if len(c) > longest {
			continue
		}
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

// nearestKey finds the key or section that was most likely meant: the one that
// is spelled most alike, or the only one that ends in the same part.
func (sc *schema) nearestKey(key string) string {
	keys := slices.DeleteFunc(sc.keys(), func(k string) bool { return strings.HasPrefix(key, k+".") })
	for _, k := range keys {
		if plain(k) == plain(key) {
			return k
		}
	}
	if best := nearest(key, keys); best != "" {
		return best
	}
	last := "." + key[strings.LastIndexByte(key, '.')+1:]
	same := slices.DeleteFunc(keys, func(k string) bool { return !strings.HasSuffix(k, last) })
	if len(same) == 1 {
		return same[0]
	}
	return ""
}

// plain is a key as somebody might spell it who is used to another style:
// waitFor, wait-for.
func plain(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// keys lists every key and section there is, with a likely name for a cache.
func (sc *schema) keys() (all []string) {
	seen := map[string]bool{}
	for _, f := range sc.fields {
		path := strings.Split(strings.Replace(f.Key(), "*", "main", 1), ".")
		for i := range path {
			if key := strings.Join(path[:i+1], "."); !seen[key] {
				seen[key] = true
				all = append(all, key)
			}
		}
	}
	return all
}
