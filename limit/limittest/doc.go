// Package limittest is the contract of limits as a test suite. It is for
// authors of drivers:
//
//	func TestConformance(t *testing.T) {
//		limittest.Run(t, limittest.Harness{Open: func() (driver.Driver, error) { return mydriver.Open(url) }})
//	}
//
// [Rules] returns the contract; each case is a claim about one rule, and its
// name begins with the rule: "W3/a refusal consumes nothing". A case uses the
// driver alone, or several Limiters, each with a driver of its own, which stand
// for processes. Cases that need a fault in the backend run if the harness can
// cause it.
//
// [Worst] checks grants by brute force, from any source: it returns the interval
// that holds most of them.
package limittest
