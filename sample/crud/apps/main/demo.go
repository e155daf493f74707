package app

import (
	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// demo is the pages of locks, messages and limits. The shop works without it.
var demo = mega.Module(
	mega.Provide(store.NewTrail, services.NewLockDemo, services.NewMessages),
	mega.Provide(handlers.NewLocks, handlers.NewMessages, handlers.NewWindows),
	mega.Routes(demoRoutes),
	mega.Subscribe(services.HoldOrders, (*services.LockDemo).OnOrder),
	mega.Subscribe(services.Strikes, (*services.LockDemo).OnStrike),
	mega.Subscribe(services.Racers, services.OnRacer, bus.Group(services.RacerGroup)),
	mega.Subscribe(services.Notes, (*services.Messages).OnNote),
	mega.Subscribe(services.Jobs, (*services.Messages).OnJob, bus.Group(services.Workers)),
	mega.Subscribe(services.JobsDone, (*services.Messages).OnDone),
	mega.Respond(services.EchoOf, (*services.Messages).AnswerEcho),
)

func demoRoutes(r mega.Router, l *handlers.Locks, m *handlers.Messages, w *handlers.Windows) {
	r.Get("/locks", l.List)
	r.Get("/locks/live", l.Live)
	r.Post("/locks/race", l.Race)
	r.Post("/locks/hold", l.Hold)
	r.Post("/locks/try", l.Try)
	r.Post("/locks/extend", l.Order(services.DoExtend))
	r.Post("/locks/release", l.Order(services.DoRelease))
	r.Post("/locks/force", l.Force)
	r.Post("/locks/kill", l.Strike(services.DoKill))
	r.Post("/locks/freeze", l.Strike(services.DoFreeze))
	r.Get("/bus", m.List)
	r.Get("/bus/live", m.Live)
	r.Post("/bus/publish", m.Publish)
	r.Post("/bus/jobs", m.Share)
	r.Post("/bus/request", m.Request)
	r.Post("/bus/slow", m.Slow)
	r.Get("/windows", w.List)
	r.Get("/windows/live", w.Live)
	r.Post("/windows", w.Call)
}
