package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

type store struct {
	stock map[string]int
	fence map[string]uint64
}

func (s *store) TakeOne(_ context.Context, id string) error {
	s.stock[id]--
	return nil
}

// Around a function: the way to take a lock.
func Example_with() {
	ctx := context.Background()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	s := &store{stock: map[string]int{"42": 50}}

	err = locks.With(ctx, "product:42", func(ctx context.Context) error {
		return s.TakeOne(ctx, "42") // ctx ends if the lease is lost
	}, lock.TTL(10*time.Second), lock.Wait(2*time.Second))

	fmt.Println(s.stock["42"], err)
	// Output: 49 <nil>
}

// status is how a web handler would tell what went wrong.
func status(err error) int {
	switch {
	case errors.Is(err, lock.ErrNotAcquired): // busy: somebody has it, and the wait is over
		return http.StatusConflict
	case errors.Is(err, lock.ErrLost): // the work may be half done, and somebody else may have begun
		return http.StatusConflict
	case errors.Is(err, lock.ErrUnavailable): // broken: the backend does not answer
		return http.StatusServiceUnavailable
	case errors.Is(err, lock.ErrInvalid): // the key or an option is out of bounds; nothing was sent
		return http.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded): // your context's end is never hidden
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

func Example_errors() {
	ctx := context.Background()
	locks, _ := lock.New(memory.NewLock(), lock.Config{})
	defer locks.Close(ctx)
	held, _ := locks.Acquire(ctx, "report", lock.Label("nightly"))
	defer held.Release()

	_, err := locks.TryAcquire(ctx, "report")

	if busy, ok := errors.AsType[*lock.NotAcquiredError](err); ok {
		fmt.Println(status(err), "held for:", busy.Holders[0].Label)
	}
	var code interface{ Code() string }
	if errors.As(err, &code) {
		fmt.Println(code.Code())
	}
	// Output:
	// 409 held for: nightly
	// lock.not_acquired
}

type ledger struct{ balance map[string]int }

func (book *ledger) transfer(_ context.Context, from, to string, amount int) error {
	book.balance[from] -= amount
	book.balance[to] += amount
	return nil
}

// Several keys at once.
func Example_withAll() {
	ctx := context.Background()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	book := &ledger{balance: map[string]int{"7": 50, "42": 0}}

	err = locks.WithAll(ctx, []string{"account:7", "account:42"}, func(ctx context.Context) error {
		return book.transfer(ctx, "7", "42", 10) // ctx ends if any of the leases is lost
	})

	fmt.Println(book.balance["7"], book.balance["42"], err)
	// Output: 40 10 <nil>
}

// When the function's shape does not fit: take it, and release it.
func Example_acquire() {
	ctx := context.Background()
	locks, _ := lock.New(memory.NewLock(), lock.Config{})
	defer locks.Close(ctx)

	lease, err := locks.Acquire(ctx, "import")
	if err != nil {
		return
	}
	defer lease.Release()

	work, cancel := context.WithTimeout(lease.Context(), time.Minute)
	defer cancel()
	fmt.Println(work.Err() == nil, lease.Key())
	// Output: true import
}

// write refuses whoever comes late: a holder that was paused for longer than
// its TTL, and whose successor has written already.
func (s *store) write(id string, stock int, fence uint64) error {
	if fence < s.fence[id] {
		return fmt.Errorf("product %s: a later holder has written", id)
	}
	s.stock[id], s.fence[id] = stock, fence
	return nil
}

func Example_fence() {
	ctx := context.Background()
	locks, _ := lock.New(memory.NewLock(), lock.Config{})
	defer locks.Close(ctx)
	s := &store{stock: map[string]int{}, fence: map[string]uint64{}}

	var late uint64
	_ = locks.With(ctx, "product:42", func(ctx context.Context) error {
		lease, _ := lock.LeaseFrom(ctx)
		late = lease.Fence()
		return nil
	})
	err := locks.With(ctx, "product:42", func(ctx context.Context) error {
		lease, _ := lock.LeaseFrom(ctx)
		return s.write("42", 7, lease.Fence())
	})

	fmt.Println(err)
	fmt.Println(s.write("42", 8, late))
	// Output:
	// <nil>
	// product 42: a later holder has written
}

// A pool: three leases at a time, each with a number of its own.
func Example_slots() {
	ctx := context.Background()
	locks, _ := lock.New(memory.NewLock(), lock.Config{})
	defer locks.Close(ctx)

	for range 3 {
		lease, err := locks.Acquire(ctx, "sandbox", lock.Slots(3))
		if err != nil {
			return
		}
		defer lease.Release()
		fmt.Println("listening on port", 9000+lease.Slot())
	}
	_, err := locks.TryAcquire(ctx, "sandbox", lock.Slots(3))
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output:
	// listening on port 9000
	// listening on port 9001
	// listening on port 9002
	// true
}

// An operator takes a lock away, and says why.
func Example_force() {
	ctx := context.Background()
	locks, _ := lock.New(memory.NewLock(), lock.Config{})
	defer locks.Close(ctx)

	stuck, _ := locks.Acquire(ctx, "export")
	work := stuck.Context()

	n, err := locks.ForceRelease(ctx, "export", "stuck since noon")
	<-work.Done()
	if lost, ok := errors.AsType[*lock.LostError](context.Cause(work)); ok {
		fmt.Println(n, err, lost.Cause, "-", lost.Reason)
	}
	// Output: 1 <nil> forced - stuck since noon
}

// watch logs what an operator wants to know.
type watch struct{ log *slog.Logger }

func (w watch) Observe(e lock.Event) {
	switch e := e.(type) {
	case lock.Lost:
		w.log.Error("lock lost", "key", e.Key, "held", e.Held, "err", e.Err)
	case lock.Forgotten:
		w.log.Warn("lock not released", "key", e.Key, "reason", e.Reason, "acquired at", e.Site)
	case lock.PoolResized:
		w.log.Warn("callers disagree about a pool's size", "key", e.Key, "old", e.Old, "new", e.New)
	}
}

func Example_observer() {
	ctx := context.Background()
	locks, err := lock.New(memory.NewLock(), lock.Config{Observer: watch{slog.Default()}})
	if err != nil {
		return
	}
	defer locks.Close(ctx)
	_ = locks.With(ctx, "product:42", func(context.Context) error { return nil })

	s := locks.Stats()
	fmt.Println(s.Acquired, s.Active, s.Lost)
	fmt.Println(s.Hold.Quantile(0.99) < time.Second)
	// Output:
	// 1 0 0
	// true
}

// bank keeps its accounts in a database.
type bank struct{ db *sql.DB }

func (b *bank) deposit(ctx *mega.Ctx, id string, amount int) error {
	return ctx.Lock.With("account:"+id, func(ctx *mega.Ctx) error {
		return guard.Tx(ctx, b.db, guard.Postgres, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", amount, id)
			return err
		})
	})
}

// The engines are tested in lock/guard/enginetest; here the guard refuses before
// it reaches a database.
func TestAGuardedWriteNeedsALease(t *testing.T) {
	if err := new(bank).deposit(new(mega.Ctx), "7", 1); !errors.Is(err, mega.ErrNotConfigured) {
		t.Errorf("without locks: %v", err)
	}
	err := guard.Tx(t.Context(), nil, guard.Postgres, func(*sql.Tx) error { return nil })
	if !errors.Is(err, lock.ErrNoLease) {
		t.Errorf("without a lease: %v", err)
	}
}
