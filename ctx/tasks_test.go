package megactx_test

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/lock"
)

func TestATaskOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.host.Locker, _ = newLocker(t)
		done := make(chan string, 1)
		s.router.Post("/orders/{id}", func(c *megactx.Ctx) error {
			return c.Lock.With("order", func(c *megactx.Ctx) error {
				c.Go("mail", func(c *megactx.Ctx) error {
					if _, ok := c.Lease(); ok {
						t.Error("it has the lease of the request")
					}
					if _, err := c.Lock.TryAcquire("order"); !errors.Is(err, lock.ErrNotAcquired) {
						t.Errorf("a key that the request holds: %v", err)
					}
					time.Sleep(time.Minute) // until the handler has long returned
					if err := c.Err(); err != nil {
						t.Errorf("it ended with the request: %v", err)
					}
					if err := c.Text(200, ""); !errors.Is(err, megactx.ErrNoRequest) {
						t.Errorf("it can answer: %v", err)
					}
					err := c.Lock.With("order", func(*megactx.Ctx) error { return nil })
					c.Log.Info("sent")
					done <- c.Param("id") + c.Query("q")
					return err
				})
				time.Sleep(time.Second)
				return nil
			})
		})
		s.ask("POST", "/orders/7?q=x", "", "X-Request-Id: abc-1")
		if asked := <-done; asked != "7x" {
			t.Errorf("it was asked for %q", asked)
		}
		synctest.Wait()
		if line := s.last(t); line["msg"] != "sent" || line["request"] != "abc-1" || line["task"] != "mail" {
			t.Errorf("its log line is %v", line)
		}
	})
}

func TestTasksThatFailAreLogged(t *testing.T) {
	for name, x := range map[string]struct {
		fn   func(*megactx.Ctx) error
		says string
	}{
		"an error": {func(*megactx.Ctx) error { return errors.New("no paper") }, `"error":"no paper"`},
		"a panic":  {func(*megactx.Ctx) error { panic("ouch") }, `"error":"panic: ouch"`},
		"a stack":  {func(*megactx.Ctx) error { panic("ouch") }, `tasks_test.go`},
		"nil text": {func(*megactx.Ctx) error { var none *fs.PathError; return none }, `"error":"panic: `},
		"Goexit":   {func(*megactx.Ctx) error { runtime.Goexit(); return nil }, `"error":"the task ended its goroutine"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				outside(t.Context(), s.host).Go("print", x.fn)
				if err := s.host.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				if text := s.log.String(); !strings.Contains(text, x.says) || !strings.Contains(text, `"task":"print"`) {
					t.Errorf("the log has %s", text)
				}
			})
		})
	}
}

func TestDrainWaitsForTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		began := time.Now()
		outside(t.Context(), s.host).Go("slow", func(*megactx.Ctx) error { time.Sleep(3 * time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.host.Drain(ctx); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("drained after %v: %v", time.Since(began), err)
		}
		if err := s.host.Drain(ctx); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

func TestDrainEndsAndNamesUnfinishedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		c, stuck := outside(t.Context(), s.host), make(chan struct{})
		c.Go("heeds", func(c *megactx.Ctx) error {
			<-c.Done()
			if !errors.Is(context.Cause(c), megactx.ErrShuttingDown) {
				t.Errorf("it ended because of %v", context.Cause(c))
			}
			return c.Err()
		})
		time.Sleep(time.Second)
		c.Go("deaf", func(*megactx.Ctx) error { <-stuck; return nil })
		c.Go("quick", func(*megactx.Ctx) error { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.host.Drain(ctx)
		if want := "tasks cut off (2): heeds (2.25s); deaf (1.25s), which does not end"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		close(stuck)
	})
}

func TestNoTaskBeginsOnceTheDrainHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		c := outside(t.Context(), s.host)
		if err := s.host.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Go("late", func(*megactx.Ctx) error { t.Error("it was begun"); return nil })
		synctest.Wait()
		if line := s.last(t); line["level"] != "ERROR" || line["task"] != "late" || line["error"] != megactx.ErrShuttingDown.Error() {
			t.Errorf("the log has %v", line)
		}
	})
}
