package bustest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
)

// Each defect is found by a case of its rule.
func TestBrokenDriversAreCaught(t *testing.T) {
	for _, defect := range slices.Concat(defects, faultDefects) {
		t.Run(defect.rule+"/"+defect.is, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{broken: func(d driver.Driver) driver.Driver {
					b := defect.broken()
					b.Driver = d
					return b
				}}
				err := bustest.Check(t.Context(), f.harness(), defect.rule)
				if err == nil {
					t.Fatalf("a driver that %s was not caught", defect.is)
				}
				if !strings.Contains(err.Error(), defect.rule+"/") {
					t.Errorf("the finding does not name %s: %v", defect.rule, err)
				}
				t.Log(found(err))
				time.Sleep(2 * time.Hour) // what the defect has left behind ends
			})
		})
	}
}

// found returns the names of the cases that failed.
func found(err error) string {
	var names []string
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, "S") {
			names = append(names, strings.SplitN(line, ":", 2)[0])
		}
	}
	return strings.Join(names, "; ")
}

// A driver without defects passes, also through the wrapper, so that what is
// caught is the defect.
func TestSoundDriverPasses(t *testing.T) {
	for _, rule := range bustest.Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{broken: func(d driver.Driver) driver.Driver { return &broken{Driver: d} }}
				err := bustest.Check(t.Context(), f.harness(), rule.ID)
				switch {
				case err == nil:
				case strings.Contains(err.Error(), "bustest: no case for"): // the fleet has none of the faults
					t.Log(err)
				default:
					t.Error(err)
				}
			})
		})
	}
}

func TestCheckRefusesAnUnknownName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := bustest.Check(t.Context(), new(fleet).harness(), "S99"); err == nil {
			t.Error("a name that no case has was taken")
		}
	})
}

// broken is a driver with one thing wrong with it. What is nil is as it should
// be.
type broken struct {
	driver.Driver
	info      func(i driver.Info) driver.Info
	attach    func(f driver.Front) driver.Front
	again     bool // a second front is taken
	publish   func(d driver.Driver, ctx context.Context, m driver.Message) error
	request   func(d driver.Driver, ctx context.Context, m driver.Message) error
	answer    func(d driver.Driver, ctx context.Context, request, answer driver.Message) error
	subscribe func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error)
	sink      func(s driver.Sink) driver.Sink
	flush     func(d driver.Driver, ctx context.Context) error
	close     func(d driver.Driver, ctx context.Context) error
}

func (b *broken) Info() driver.Info {
	if b.info == nil {
		return b.Driver.Info()
	}
	return b.info(b.Driver.Info())
}

func (b *broken) Attach(f driver.Front) error {
	if b.attach != nil {
		f = b.attach(f)
	}
	err := b.Driver.Attach(f)
	if b.again {
		return nil
	}
	return err
}

func (b *broken) Publish(ctx context.Context, m driver.Message) error {
	if b.publish == nil {
		return b.Driver.Publish(ctx, m)
	}
	return b.publish(b.Driver, ctx, m)
}

func (b *broken) Request(ctx context.Context, m driver.Message) error {
	if b.request == nil {
		return b.Driver.Request(ctx, m)
	}
	return b.request(b.Driver, ctx, m)
}

func (b *broken) Answer(ctx context.Context, request, answer driver.Message) error {
	if b.answer == nil {
		return b.Driver.Answer(ctx, request, answer)
	}
	return b.answer(b.Driver, ctx, request, answer)
}

func (b *broken) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	if b.sink != nil {
		s.Sink = b.sink(s.Sink)
	}
	if b.subscribe == nil {
		return b.Driver.Subscribe(ctx, s)
	}
	return b.subscribe(b.Driver, ctx, s)
}

func (b *broken) Flush(ctx context.Context) error {
	if b.flush == nil {
		return b.Driver.Flush(ctx)
	}
	return b.flush(b.Driver, ctx)
}

func (b *broken) Close(ctx context.Context) error {
	if b.close == nil {
		return b.Driver.Close(ctx)
	}
	return b.close(b.Driver, ctx)
}
