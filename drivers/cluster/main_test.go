package cluster

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runSocketChild()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/redistest.(*Process).run"))
}
