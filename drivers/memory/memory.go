// Package memory keeps locks and carries messages in the memory of one process.
//
// It is for tests, for laptops, and for programs that run as a single process:
// exclusion and messages end at the process. Nothing outlives it, except that
// fences go on growing after a restart, because they are never below the time
// of day.
//
//	l, err := lock.New(memory.NewLock(), lock.Config{})
//	b, err := bus.New(memory.NewBus(), bus.Config{})
//
// There is no goroutine behind it and no time of its own, so under
// testing/synctest it runs on fake time.
//
// # Messages
//
// A message goes straight from its publisher's goroutine into the queues of the
// subscriptions that match. Patterns are in a trie; what was found for a subject
// is remembered, for 1024 subjects at most, until a subscription comes or goes,
// so that publishing takes no lock but those of the queues. A new subscription
// costs what its pattern is deep, however many there are, and publishers a look
// at the trie for each subject.
package memory
