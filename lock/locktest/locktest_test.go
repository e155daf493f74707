package locktest_test

import (
	"testing"

	"github.com/megaframework/mega/lock/locktest"
)

// The front's local queue, over a table that several processes share.
func TestFleet(t *testing.T) {
	locktest.Run(t, new(fleet).harness())
}

// The same with drivers whose Acquire has two parts.
func TestAskingFleet(t *testing.T) {
	locktest.Run(t, (&fleet{asks: true}).harness())
}
