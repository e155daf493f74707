package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// childProgram, in the environment, makes the test's executable a program of
// that name, run as any other is.
const childProgram = "CHILD_TEST_PROGRAM"

// runChild does not return in a process that is such a program.
func runChild() {
	if name := os.Getenv(childProgram); name != "" {
		limitDescriptors()
		mega.Main(children()[name])
	}
}

func children() map[string]mega.Option {
	say := func(what string) { fmt.Fprintln(os.Stderr, what) }
	wait := func(what string) func(context.Context) error {
		return func(ctx context.Context) error {
			say("in " + what)
			<-ctx.Done()
			say("out of " + what)
			return ctx.Err()
		}
	}
	never := mega.OnStart("never", func(context.Context) { say("it went on") })
	return map[string]mega.Option{
		"shop":     mega.App("main", mega.Provide(newTill), mega.Routes(func(r mega.Router, t *till) { r.Post("/sell/{id}", t.sell) })),
		"server":   mega.App("main", never),
		"primary":  mega.App("main", mega.OnPrimary("migrate", wait("primary")), never),
		"start":    mega.App("main", mega.OnStart("warm up", wait("start")), never),
		"run":      mega.App("main", mega.Run("pump", wait("run"))),
		"settings": mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) })),
		"counter":  mega.App("main", mega.Routes(func(r mega.Router) { r.Post("/sell/{id}", tellSettings) })),
		"slow":     mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", slowHandler) })),
		"pair": mega.Module(
			mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) })),
			mega.App("admin", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) })),
		),
		"waiting": mega.App("main", mega.Routes(func(r mega.Router) {
			r.Get("/", tellSettings)
			r.Get("/wait", func(ctx *mega.Ctx) error { <-ctx.Done(); return ctx.Err() })
		})),
		"hoarding": mega.App("main", mega.Routes(func(r mega.Router) {
			r.Get("/", hoard)
		})),
		"streams": mega.App("main", mega.Routes(func(r mega.Router) {
			r.Get("/sse", func(ctx *mega.Ctx) error {
				return ctx.SSE(func(s *mega.Stream) error {
					if err := s.Send("hello", "world"); err != nil {
						return err
					}
					<-s.Done()
					return s.Err()
				})
			})
			r.Get("/hijack", holdHijacked)
		})),
		"nesting": mega.App("main", mega.OnStart("start another program", func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), childProgram+"=nested", "MEGA_CLUSTER_WORKERS=1", "MEGA_LOG_LEVEL=error") // the boot report is that of the workers
			cmd.Stderr = os.Stderr
			return cmd.Run()
		})),
		"nested": mega.App("main", mega.OnStart("tell", func(l *lock.Locker, _ context.Context) error {
			say(fmt.Sprintf("nested %q %s", os.Getenv("MEGA_WORKER_ID"), l.Info().Name))
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return self.Signal(syscall.SIGTERM)
		})),
		"stuck":  mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", stuckHandler) })),
		"broken": mega.App("main", mega.OnStart("warm up", func(context.Context) error { return errors.New("no fuel") })),
		"migrating": mega.App("main", mega.OnPrimary("migrate", migrate), mega.OnPrimary("migrate", func(context.Context) {}),
			mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) })),
		"fragile": mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) }), mega.OnStart("warm up", func(context.Context) error {
			if _, err := os.Stat(os.Getenv("FRAGILE")); err == nil {
				return errors.New("no fuel")
			}
			return nil
		})),
		"clinging": mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) }), mega.OnStart("cling", func(context.Context) {
			if os.Getenv("CLING") != "" {
				say("clinging " + strconv.Itoa(os.Getpid()))
				time.Sleep(time.Minute) // whatever its context says
			}
		})),
		"fleet": mega.App("main", mega.Provide(arrive), mega.OnPrimary("migrate", migrateFleet),
			mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) })),
		"consoled": mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) }), mega.Run("hold", func(ctx *mega.Ctx) error {
			_ = ctx.Lock.With("held:"+os.Getenv("MEGA_WORKER_ID"), func(ctx *mega.Ctx) error {
				<-ctx.Done()
				return nil
			})
			<-ctx.Done() // also if the lock was released by force
			return nil
		})),
		"watched": mega.App("main", mega.Routes(func(r mega.Router) { r.Get("/", tellSettings) }), mega.Ready("disk", diskOfWorker)),
		"constructor": mega.App("main", never,
			mega.Provide(func() *till {
				say("in constructor")
				time.Sleep(500 * time.Millisecond) // it has no context to heed
				say("out of constructor")
				return &till{}
			}),
			mega.OnStart("use", func(*till, context.Context) {})),
	}
}

// hoard keeps all descriptors of the process until the client disconnects.
func hoard(ctx *mega.Ctx) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	fmt.Fprintln(os.Stderr, "no descriptor left")
	<-ctx.Done()
	return ctx.Err()
}

// holdHijacked takes the connection over and closes it when the process ends.
func holdHijacked(ctx *mega.Ctx) error {
	conn, _, err := http.NewResponseController(ctx.Writer()).Hijack()
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	<-ctx.Done()
	return errors.Join(err, conn.Close())
}

// till counts what was sold, in redis.
type till struct{ redis goredis.UniversalClient }

func newTill(r goredis.UniversalClient) *till { return &till{r} }

func (t *till) sell(ctx *mega.Ctx) error {
	return ctx.Lock.With("product:"+ctx.Param("id"), func(ctx *mega.Ctx) error {
		n, err := t.redis.Get(ctx, "sold").Int()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return err
		}
		if err := t.redis.Incr(ctx, "sold").Err(); err != nil {
			return err
		}
		return ctx.Text(http.StatusOK, strconv.Itoa(n))
	})
}

func slowHandler(ctx *mega.Ctx) error {
	fmt.Fprintln(os.Stderr, "in request")
	time.Sleep(500 * time.Millisecond)
	return ctx.Text(http.StatusOK, "done")
}

func stuckHandler(*mega.Ctx) error {
	fmt.Fprintln(os.Stderr, "in request")
	select {}
}

// migrate is done when there is a file that says so.
func migrate(ctx *mega.Ctx) error {
	ctx.Log.Info("migrating", "pid", os.Getpid())
	for {
		if _, err := os.Stat(filepath.Join(os.Getenv("MIGRATIONS"), "done")); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// arrived is a process of a node that has begun to boot.
type arrived struct{ dir string }

// arrive leaves a mark of the node, its supervisor.
func arrive() (*arrived, error) {
	dir := os.Getenv("FLEET")
	return &arrived{dir}, os.WriteFile(filepath.Join(dir, "node-"+strconv.Itoa(os.Getppid())), nil, 0o600)
}

// migrateFleet waits for both nodes, so that their migrations overlap unless they
// exclude each other, and leaves a mark of each run and of each overlap.
func migrateFleet(a *arrived, ctx context.Context) error {
	for {
		if nodes, err := filepath.Glob(filepath.Join(a.dir, "node-*")); err != nil || len(nodes) >= 2 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	mark := func(name string) error {
		f, err := os.OpenFile(filepath.Join(a.dir, name), os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	err := mark("running")
	if errors.Is(err, os.ErrExist) {
		return mark("overlap")
	}
	time.Sleep(200 * time.Millisecond)
	return errors.Join(err, mark("ran-"+strconv.Itoa(os.Getppid())), os.Remove(filepath.Join(a.dir, "running")))
}

// diskOfWorker fails in the workers for which there is a file.
func diskOfWorker(context.Context) error {
	if _, err := os.Stat(filepath.Join(os.Getenv("DISKS"), os.Getenv("MEGA_WORKER_ID"))); err == nil {
		return errors.New("no space left on device")
	}
	return nil
}

func tellSettings(ctx *mega.Ctx) error {
	ctx.Log.Debug("a detail")
	return ctx.Text(http.StatusOK, "told")
}
