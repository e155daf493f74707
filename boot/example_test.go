package boot_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"go.uber.org/fx"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
)

// A program that runs an application inside itself, on its own configuration.
func ExampleStart() {
	hello := mega.App("web", mega.Routes(func(r mega.Router) {
		r.Get("/hello/{name}", func(ctx *mega.Ctx) error {
			return ctx.Text(http.StatusOK, "hello "+ctx.Param("name"))
		})
	}))
	running, err := boot.Start(context.Background(), boot.Process{
		Name:   "greeter",
		Stderr: io.Discard,
		Set:    []string{"apps.web.addr=127.0.0.1:0", "ops.addr=127.0.0.1:0"},
	}, hello)
	if err != nil {
		fmt.Println(err)
		return
	}

	answer, err := http.Get(running.Report().Apps[0].URL + "/hello/Kim")
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	fmt.Println(string(text))
	fmt.Println(running.Stop())
	// Output:
	// hello Kim
	// <nil>
}

// A test of a deployment: which drivers a configuration selects.
func ExamplePlan() {
	plan, err := boot.Plan(boot.Process{
		Name:    "shop",
		Environ: []string{"MEGA_CACHE_MAIN_URL=redis://cache.example.org:6379"},
	}, mega.App("web"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locks:", plan.Lock.Chosen, plan.Lock.Scope)
	fmt.Println("messages:", plan.Bus.Chosen, plan.Bus.Scope)
	// Output:
	// locks: redis fleet
	// messages: memory process
}

// A value for the functions of an app, from an option of fx.
func ExampleFx() {
	type greeting string
	running, err := boot.Start(context.Background(), boot.Process{
		Name:    "greeter",
		Stderr:  io.Discard,
		Offline: &boot.Offline{},
	}, mega.App("web",
		boot.Fx(fx.Supply(greeting("hello"))),
		mega.OnStart("greet", func(g greeting, _ context.Context) error {
			fmt.Println(g)
			return nil
		}),
	))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(running.Stop())
	// Output:
	// hello
	// <nil>
}
