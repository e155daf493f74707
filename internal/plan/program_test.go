package plan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/failure"
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

func TestOptionWithoutFilesIsRefusedWithItsPlace(t *testing.T) {
	for name, o := range map[string]plan.Option{"Views": plan.Views(nil), "Public": plan.Public(nil), "Locales": plan.Locales(nil)} {
		for _, options := range [][]plan.Option{{plan.App("web", o)}, {plan.App("web"), o}} {
			_, err := plan.NewProgram(options, nil)
			f, ok := errors.AsType[*failure.Failure](err)
			if !ok || f.Code != "boot.wrong_shape" || f.Text != "mega."+name+" cannot use what it was given: it is nil." || !strings.Contains(f.Facts[0].Value, "program_test.go:") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
