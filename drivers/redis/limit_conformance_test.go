package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/lock"
)

func TestLimitsKeepTheContract(t *testing.T) {
	limittest.RunParallel(t, func(t *testing.T) limittest.Harness { return newYard(t, redis.EngineQueue).limits() })
}

func TestLimitsKeepTheContractOnACluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, redistest.Options{})
	limittest.RunParallel(t, func(*testing.T) limittest.Harness {
		return limittest.Harness{Open: func() (driver.Driver, error) {
			return redis.OpenLimit(context.Background(), redis.Config{URL: c.URL()})
		}, Unit: 600 * time.Millisecond}
	})
}

// limits is the harness of limits.
func (y *yard) limits() limittest.Harness {
	s := y.server
	h := limittest.Harness{
		Open:   y.openLimit,
		Locker: func() (*lock.Locker, error) { return lock.New(memory.NewLock(), lock.Config{}) },
		Unit:   600 * time.Millisecond, // as for locks
		Background: []string{
			"github.com/megaframework/mega/internal/testkit/redis.(*Process).run",
			"github.com/megaframework/mega/internal/testkit/redis.(*Proxy).accept",
		},
		Faults: limittest.Faults{
			Stop: s.Pause, Continue: s.Continue,
			DropReply: func(d driver.Driver) error {
				d.(limitProcess).proxy.DropReply(func(c redistest.Command) bool { return c.Name == "take" })
				return nil
			},
			Restart: func() error {
				if err := s.Kill(); err != nil {
					return err
				}
				return s.Restart()
			},
			Crash: func(d driver.Driver) error { return d.(limitProcess).proxy.Close() },
		},
	}
	if redistest.CanStepClock() {
		h.Faults.StepClock = func(by time.Duration) (func() error, error) {
			return func() error { return s.StepClock(0) }, s.StepClock(by)
		}
	}
	return h
}

// limitProcess is a driver of limits that reaches the server through a proxy of
// its own.
type limitProcess struct {
	driver.Driver
	proxy *redistest.Proxy
}

func (y *yard) openLimit() (driver.Driver, error) {
	p, err := redistest.NewProxy(y.server, y.name)
	if err != nil {
		return nil, err
	}
	d, err := redis.OpenLimit(context.Background(), redis.Edited(redis.Config{URL: p.URL()}, y.edit))
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return limitProcess{d, p}, nil
}

func (p limitProcess) Close(ctx context.Context) error {
	err := p.Driver.Close(ctx)
	_ = p.proxy.Close()
	return err
}
