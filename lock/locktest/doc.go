// Package locktest tests that a lock driver keeps the contract of package lock.
// It has named cases for every rule.
//
// A driver's test is a few lines:
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, locktest.Harness{
//			Open: func() (driver.Driver, error) { return redis.OpenLock(ctx, config) },
//		})
//	}
//
// # For authors of drivers
//
// Start with package driver: its comments are the contract of a driver. Then
// call [Run] with a [Harness]. With Open alone, every case runs that needs
// nothing but the driver. Each of the Faults that the harness implements adds
// the cases that need it. The run lists the omitted cases with the reason, so
// that no case is skipped silently.
//
// The name of a case is its rule and its claim, as in "L5/a cancelled request
// still releases". A failure prints the text of the rule beside the
// observation. Most cases use a lock.Locker, because front and driver keep the
// contract together. Cases whose claim begins with "the driver" call the driver
// directly.
//
// Info().Lacks lists the rules that a driver does not keep. Their cases are
// replaced by cases that require the driver to refuse the missing feature.
//
// Cases do not sleep for a guessed time. They wait for a condition, with a
// timeout in multiples of Harness.Unit. A driver that uses only package time
// runs on fake time, which makes the whole suite take moments. The cases of any
// other driver spend most of their time waiting. [RunParallel] runs them
// concurrently, so that the Unit can be long enough for a busy machine.
//
// [Faulty] and [Plan] put faults between a front and any driver; the cases of
// this package use them, and so do other tests of drivers and fronts.
package locktest
