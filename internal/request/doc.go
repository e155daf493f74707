// Package request serves the requests and messages of an app and keeps what a Ctx
// is made of. Only the framework uses it; package megactx shows handlers a part.
//
// A [Host] is the state that all work of an app shares: its files, its services,
// its limits, and the requests, streams and tasks in progress. A [Work] is one
// request, or one piece of work outside a request, and travels in a context:
//
//	Door.Handler, Door.Route      a request            serve.go, limits.go, response.go
//	Host.Handle, Host.Answer      a message            message.go
//	Host.Context                  a hook or a task     work.go, tasks.go
//
// Each puts a Work on a context, and megactx.From returns the Ctx for the innermost
// Work of a context. So this package does not know the Ctx; a [Door] has the
// function that makes it. The methods of the Ctx use the Work.
//
// The error of a handler becomes an answer in problem.go, with the texts of
// words.go, as a page in views.go or devpage.go.
package request
