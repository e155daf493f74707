package redis

import "fmt"

// answer is an array that a script answered. A script is trusted to answer in
// its own form, a server is not: what has another reads as zero, and check
// finds it.
type answer []any

func (a answer) num(i int) int64 {
	if i < len(a) {
		if n, ok := a[i].(int64); ok {
			return n
		}
	}
	return 0
}

func (a answer) text(i int) string {
	if i < len(a) {
		if s, ok := a[i].(string); ok {
			return s
		}
	}
	return ""
}

func (a answer) sub(i int) answer {
	if i < len(a) {
		if s, ok := a[i].([]any); ok {
			return s
		}
	}
	return nil
}

// check returns reply as an array of at least n.
func check(reply any, n int) (answer, error) {
	a, ok := reply.([]any)
	if !ok || len(a) < n {
		return nil, unavailable(fmt.Errorf("the script answered %.80v: is this a Redis?", reply))
	}
	return a, nil
}
