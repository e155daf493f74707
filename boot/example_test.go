package boot_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
)

// A program that runs an application inside itself, on its own configuration.
func ExampleStart() {
	hello := boot.App("web", boot.Routes(func(r megactx.Router) {
		r.Get("/hello/{name}", func(ctx *megactx.Ctx) error {
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

// Plan makes the decisions of a start, and opens nothing.
func ExamplePlan() {
	plan, err := boot.Plan(boot.Process{
		Name:    "shop",
		Stderr:  io.Discard,
		Environ: []string{"MEGA_CACHE_MAIN_URL=redis://cache.example.org:6379"},
	}, boot.App("web"))
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
