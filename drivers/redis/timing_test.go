//go:build !race

package redis_test

// timed reports that upper bounds on time are checked: the race detector makes
// everything too slow for that.
const timed = true
