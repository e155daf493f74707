package megatest_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/megatest"
)

// purchased is the event of a purchase.
const purchased = bus.Topic[purchase]("product.purchased")

type purchase struct{ ID string }

// shop is the application of the examples.
func shop() mega.Option {
	return mega.Routes(func(r mega.Router) {
		r.Post("/products/{id}/buy", func(ctx *mega.Ctx) error {
			return ctx.Lock.With("product:"+ctx.Param("id"), func(ctx *mega.Ctx) error {
				if err := mega.Publish(ctx, purchased, purchase{ctx.Param("id")}); err != nil {
					return err
				}
				return ctx.JSON(http.StatusOK, "sold")
			})
		})
	})
}

func ExampleNew() {
	t := newTest() // in a test, its *testing.T
	defer t.end()

	kit := megatest.New(t, megatest.Config{}, shop())
	answer := kit.Post("/products/42/buy", nil).Status(http.StatusOK)
	fmt.Println(answer.Body())
	fmt.Println(megatest.Published(kit.Bus, purchased, 1))
	// Output:
	// "sold"
	// [{42}]
}

func ExampleLocks_Hold() {
	t := newTest() // in a test, its *testing.T
	defer t.end()

	kit := megatest.New(t, megatest.Config{Set: []string{"lock.wait=20ms"}}, shop())
	release := kit.Lock.Hold("product:42") // as another process would
	busy := kit.Post("/products/42/buy", nil).Code("lock.not_acquired")
	release()
	free := kit.Post("/products/42/buy", nil)
	fmt.Println(busy.Recorded.Code, free.Recorded.Code)
	// Output: 409 200
}

// exampleTest takes the place of a *testing.T, which an example does not have.
type exampleTest struct {
	testing.TB
	cleanups []func()
}

func newTest() *exampleTest { return &exampleTest{} }

func (t *exampleTest) Helper() {}

func (t *exampleTest) Context() context.Context { return context.Background() }

func (t *exampleTest) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *exampleTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (t *exampleTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTest) end() {
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		f := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		f()
	}
}
