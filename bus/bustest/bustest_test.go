package bustest_test

import (
	"testing"

	"github.com/megaframework/mega/bus/bustest"
)

// The front, over routes that several processes share.
func TestFleet(t *testing.T) {
	bustest.Run(t, new(fleet).harness())
}

func TestAFlawedFleetIsCaught(t *testing.T) {
	bustest.RunFlawed(t, new(fleet).harness())
}
