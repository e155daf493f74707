// Package memory keeps locks and limits and carries messages in the memory of
// one process.
//
// It is for tests, for laptops, and for programs that run as a single process:
// exclusion, limits and messages end at the process. Nothing outlives it, except that
// fences continue to grow after a restart, because they are never below the
// time of day.
//
//	l, err := lock.New(memory.NewLock(), lock.Config{})
//	b, err := bus.New(memory.NewBus(), bus.Config{})
//	m, err := limit.New(memory.NewLimit(), limit.Config{})
//
// The drivers have no goroutines and use only the time of package time, so they
// run on fake time under testing/synctest.
//
// # Messages
//
// A message goes straight from its publisher's goroutine into the queues of the
// subscriptions that match. Patterns are stored in a trie. A cache holds the
// result for at most 1024 subjects, until a subscription is added or ends, so
// that Publish takes only the locks of the queues. The cost of a new
// subscription grows with the depth of its pattern and not with the number of
// subscriptions; afterwards publishers search the trie once for each subject.
package memory
