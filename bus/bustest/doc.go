// Package bustest tests that a bus driver keeps the contract of package bus,
// with named cases for every rule.
//
// A driver's test is a few lines:
//
//	func TestBusConformance(t *testing.T) {
//		bustest.Run(t, bustest.Harness{
//			Open: func() (driver.Driver, error) { return nats.OpenBus(ctx, config) },
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
// A case is called by its rule and its claim, as in "S8/no handler starts after
// Stop". When it fails, the rule's sentence is printed beside what was seen.
// All cases go through a bus.Bus, since the promise is one of front and driver
// together. Where the driver's scope is wider than the process, publishers and
// subscribers are different processes.
//
// In every case the counters of each Bus have to add up when it is closed, and
// no goroutine may be left running.
//
// Cases do not sleep for luck. That something has not arrived is known once the
// publisher was flushed and the subscription was drained. A driver without a
// clock of its own runs on fake time, which makes the whole suite a matter of
// moments.
package bustest
