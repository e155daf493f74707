// Package locktest proves that a lock driver keeps the contract of package
// lock: every rule, as named cases.
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
// Start with package driver: its comments are what a driver promises. Then
// give [Run] a [Harness]. Open alone runs every case that needs nothing but
// the driver. Each of the Faults that the harness can do to its backend adds
// the cases that need it; the run lists those that remain out, and why, so
// that nothing is skipped in silence.
//
// A case is called by its rule and its claim, as in "L5/a cancelled request
// still releases". When it fails, the rule's sentence is printed beside what
// was seen. Most cases go through a lock.Locker, since the promise is one of
// front and driver together; those whose claim begins with "the driver" call
// the driver itself.
//
// A rule that a driver does not keep stands in Info().Lacks. Its cases are
// replaced by ones that demand that what it lacks is refused.
//
// Cases do not sleep for luck. They wait for a condition, for a bounded time,
// counted in Harness.Unit. A driver without a clock of its own runs on fake
// time, which makes the whole suite a matter of moments. The cases of any other
// driver mostly wait, and [RunParallel] has them wait side by side, so that the
// Unit can be long enough for a busy machine.
//
// [Faulty] and [Plan] put faults between a front and any driver; they serve the
// cases here, and tests of drivers and fronts elsewhere.
package locktest
