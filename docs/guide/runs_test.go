package guide_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mega "github.com/megaframework/mega"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

// What 07-locks-in-practice.md shows of runs and migrations.

func nightlyByHand(ctx context.Context, locks *lock.Locker, send func(context.Context) error) error {
	lease, err := locks.TryAcquire(ctx, "report")
	if errors.Is(err, lock.ErrNotAcquired) {
		return nil // another process does it
	}
	if err != nil {
		return err
	}
	defer lease.Release()
	return send(ctx)
}

func sendNightly(ctx context.Context, locks *lock.Locker, send func(context.Context) error) error {
	ran, err := locks.Once(ctx, "report", 24*time.Hour, send)
	if ran {
		fmt.Println("report sent:", err)
	}
	return err
}

func reports(send func(*mega.Ctx) error) mega.Option {
	return mega.Every("report", 24*time.Hour, send)
}

// schema is a database with a version.
type schema struct {
	version atomic.Int64
	runs    atomic.Int64
	began   chan struct{} // if not nil, receives when a migration has begun
	release chan struct{} // if not nil, a migration waits for it
}

func (s *schema) migrate(context.Context) error {
	s.runs.Add(1)
	if s.began != nil {
		s.began <- struct{}{}
		<-s.release
	}
	s.version.Store(2)
	return nil
}

func migrateByHand(ctx context.Context, schema *schema) error {
	if schema.version.Load() >= 2 {
		return nil
	}
	return schema.migrate(ctx)
}

func migrations(s *schema) mega.Option {
	return mega.OnPrimary("migrate", func(ctx *mega.Ctx) error { return migrateByHand(ctx, s) })
}

func announce(ctx context.Context, locks *lock.Locker, version string, send func(context.Context) error) error {
	_, err := locks.Once(ctx, "announce:"+version, 365*24*time.Hour, send)
	return err
}

func TestAVersionIsAnnouncedOnceByAnyNumberOfStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := memory.NewLock()
		sent := 0
		for _, version := range []string{"v1", "v1", "v2", "v2", "v2"} {
			err := announce(t.Context(), newLocks(t, backend), version, func(context.Context) error { sent++; return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		if sent != 2 {
			t.Errorf("two versions were announced %d times", sent)
		}
	})
}

func TestAReportIsSentTwiceByHandAndOnceByOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memory.NewLock())
		sent := 0
		send := func(context.Context) error { sent++; return nil }
		for range 2 { // two processes, whose clocks differ by two seconds
			if err := nightlyByHand(t.Context(), locks, send); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if sent != 2 {
			t.Errorf("by hand: sent %d times; the page says twice", sent)
		}
		sent = 0
		for range 2 {
			if err := sendNightly(t.Context(), locks, send); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if sent != 1 {
			t.Errorf("with Once: sent %d times", sent)
		}
	})
}

func TestTwoNodesMigrateAtOnceByHand(t *testing.T) {
	s := &schema{began: make(chan struct{}), release: make(chan struct{})}
	done := make(chan error)
	for range 2 {
		go func() { done <- migrateByHand(t.Context(), s) }()
	}
	<-s.began
	<-s.began // both have looked before either has finished
	close(s.release)
	if err := errors.Join(<-done, <-done); err != nil || s.runs.Load() != 2 {
		t.Errorf("%d migrations, %v; the page says two", s.runs.Load(), err)
	}
}

func TestTheOptionsOfRunsAndMigrationsAreAccepted(t *testing.T) {
	if reports(func(*mega.Ctx) error { return nil }) == nil || migrations(new(schema)) == nil {
		t.Error("no option")
	}
}
