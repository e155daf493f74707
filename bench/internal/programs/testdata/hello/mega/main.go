// A program of mega that says hello: its defaults, with locks and messages in
// memory, and the listener for operators.
package main

import (
	"net/http"

	"github.com/megaframework/mega"
)

func main() { mega.Main(mega.App("main", mega.Routes(routes))) }

func routes(r mega.Router) { r.Get("/", hello) }

func hello(ctx *mega.Ctx) error { return ctx.Text(http.StatusOK, "hello\n") }
