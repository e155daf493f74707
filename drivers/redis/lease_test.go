package redis_test

import (
	"testing"

	"github.com/megaframework/mega/drivers/redis"
)

// A lease in its last millisecond has 0 ms left, and still is a lease.
func TestWhichValuesAreLeases(t *testing.T) {
	const token = "0123456789-_abcdefABCD"
	for _, test := range []struct {
		value string
		left  int
		want  int64
	}{
		{token, 5000, 1}, {token + " 3 5 1 0 x", 1, 1}, {token + " 3 5 1 0 x", 0, 1},
		{token, -1, 0}, {token + "x", 5000, 0}, {token[1:], 5000, 0}, {"", 5000, 0}, {token[:21] + " 3 5 1 0 x", 5000, 0},
		{token + " and more", 5000, 0}, {token + `{"v":"x"}`, 5000, 0}, {token + `{"owner":1}`, 5000, 0},
	} {
		if got := do(t, "EVAL", redis.LeaseScript, 0, test.value, test.left); got != test.want {
			t.Errorf("%q with %d ms left: %v, want %d", test.value, test.left, got, test.want)
		}
	}
}
