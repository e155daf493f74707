//go:build race

package redis_test

const timed = false
