package redis

import "fmt"

// answer is an array that a script returned. The driver's own scripts return
// the right form, but an unknown server may not: a value of another form reads
// as zero, and check finds it.
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
		return nil, unexpected(reply)
	}
	return a, nil
}

func unexpected(reply any) error {
	return unavailable(fmt.Errorf("unexpected answer of a script, %.80v: check that the server is a Redis", reply))
}
