package plan_test

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	megactx "github.com/megaframework/mega/ctx"
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

// A program may leave an option out by a condition, inside a function's option too.
func TestNilOptionsAreLeftOut(t *testing.T) {
	look := func(context.Context) error { return nil }
	handle := func(*megactx.Ctx, string) error { return nil }
	_, err := plan.NewProgram([]plan.Option{nil, plan.App("web", nil, plan.Module(nil),
		plan.OnStart("warm up", look, nil), plan.Subscribe("sold", reflect.TypeFor[string](), handle, nil))}, nil)
	if err != nil {
		t.Error(err)
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

// refusal returns the text and the facts of the failure of a program, as lines.
func refusal(t *testing.T, options ...plan.Option) string {
	t.Helper()
	_, err := plan.NewProgram(options, nil)
	f, ok := errors.AsType[*failure.Failure](err)
	if !ok {
		t.Fatalf("got %v, want a failure", err)
	}
	text := f.Text
	for _, fact := range f.Facts {
		text += "\n" + fact.Name + ": " + fact.Value
	}
	return strings.Join(append([]string{text}, f.Actions...), "\n")
}

func TestTypesOfTheFrameworkAreNamedAsProgramsImportThem(t *testing.T) {
	got := refusal(t, plan.App("web", plan.Routes(func(*megactx.Ctx, map[string]megactx.Router) error { return nil })))
	if !strings.Contains(got, "got: func(*mega.Ctx, map[string]mega.Router) error") {
		t.Error(got)
	}
	if got := refusal(t, plan.App("web", plan.Provide(func(*megactx.Ctx) int { return 1 }))); !strings.Contains(got, ": *mega.Ctx belongs to a request") {
		t.Error(got)
	}
}

// A value in place of its constructor is the usual mistake.
func TestAValueInPlaceOfItsConstructorIsAnsweredWithTheShapeOfOne(t *testing.T) {
	got := refusal(t, plan.App("web", plan.Provide(&shelf{})))
	for _, want := range []string{"it is not a function", "want: func(provided values…) (value…)", "got: *plan_test.shelf"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if got := refusal(t, plan.App("web", plan.OnStart("warm", 7))); !strings.Contains(got, "want: func(provided values…, context.Context) error") {
		t.Error(got)
	}
}

func TestRefusedAppHasTheReasonAndTheOtherPlace(t *testing.T) {
	first := plan.App("web")
	for _, x := range []struct {
		options []plan.Option
		want    []string
	}{
		{[]plan.Option{first, plan.App("web")}, []string{`Two apps have the name "web".`, "\nfirst: ", "\nagain: ", "program_test.go:"}},
		{[]plan.Option{plan.App("We b")}, []string{`The name "We b" of an app is not a lower-case word.`, "given at: "}},
		{[]plan.Option{plan.App("web", plan.App("in"))}, []string{`App "in" is nested inside app "web". Apps cannot be nested.`, "given at: ", `Pass mega.App("in", …) to mega.Main`}},
	} {
		got := refusal(t, x.options...)
		for _, want := range x.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in %s", want, got)
			}
		}
	}
}

func oneShelf() *shelf     { return &shelf{} }
func anotherShelf() *shelf { return &shelf{} }

func TestValueThatIsProvidedTwiceHasTheNamesOfBothConstructors(t *testing.T) {
	got := refusal(t, plan.App("web", plan.Provide(oneShelf, anotherShelf)))
	for _, want := range []string{"first: plan_test.oneShelf, given at ", "again: plan_test.anotherShelf, given at ", "Remove one of them"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
}

func TestAPatternThatTheBusRefusesIsRefusedWithItsPlace(t *testing.T) {
	handle := func(*megactx.Ctx, string) error { return nil }
	answer := func(*megactx.Ctx, string) (string, error) { return "", nil }
	for pattern, legal := range map[string]bool{"order.*.created": true, ">": true, "": false, "order..created": false, "order.>.created": false, "_order": false} {
		for _, o := range []plan.Option{plan.Subscribe(pattern, reflect.TypeFor[string](), handle), plan.Respond(pattern, answer)} {
			for _, options := range [][]plan.Option{{plan.App("web", o)}, {plan.App("web"), o}} {
				_, err := plan.NewProgram(options, nil)
				f, ok := errors.AsType[*failure.Failure](err)
				if ok == legal || ok && (f.Code != "boot.wrong_shape" || !strings.Contains(f.Text, strconv.Quote(pattern)) || !strings.Contains(f.Facts[0].Value, "program_test.go:")) {
					t.Errorf("%q: %v", pattern, err)
				}
			}
		}
	}
}
