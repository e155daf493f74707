// Package memory keeps locks in the memory of one process.
//
// It is for tests, for laptops, and for programs that run as a single process:
// exclusion ends at the process. Nothing outlives it, except that fences go on
// growing after a restart, because they are never below the time of day.
//
//	l, err := lock.New(memory.NewLock(), lock.Config{})
//
// There is no goroutine behind it and no time of its own, so under
// testing/synctest it runs on fake time.
package memory
