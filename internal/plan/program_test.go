package plan_test

import (
	"context"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/plan"
)

func TestWorkersHaveTheTimeOfTheirLongestCheck(t *testing.T) {
	look := func(context.Context) error { return nil }
	for want, options := range map[time.Duration][]plan.Option{
		2 * time.Second: {plan.App("web", plan.Ready("disk", look, plan.Budget(time.Second)), plan.OnStart("warm up", look, plan.Budget(time.Minute)))},
		5 * time.Second: {plan.App("web", plan.Ready("disk", look)), plan.App("admin", plan.Ready("vendor", look, plan.Budget(5*time.Second)))},
	} {
		p, err := plan.NewProgram(options, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.LongestCheck(); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
