package lazyctx_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/megaframework/mega/internal/lazyctx"
)

var errEnd = errors.New("the end")

func newInner() *lazyctx.Inner {
	ctx, end := context.WithCancelCause(context.Background())
	return &lazyctx.Inner{Context: ctx, End: end}
}

func TestTwoFirstWaitersGetTheSameContext(t *testing.T) {
	var s lazyctx.State
	one, other := newInner(), newInner()
	if s.Use(one, nil) != one || s.Use(other, nil) != one || s.Inner() != one {
		t.Error("the second one got another context")
	}
	if one.Err() != nil || other.Err() == nil {
		t.Errorf("the context that both wait for: %v, the other one: %v", one.Err(), other.Err())
	}
}

func TestTheContextEndsBeforeAndAfterItsFirstUse(t *testing.T) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		var s lazyctx.State
		if before {
			s.End(errEnd)
		}
		in := s.Use(newInner(), errEnd)
		if !before && (in.Err() != nil || !s.End(errEnd)) {
			t.Errorf("%s: the context has ended already", name)
		}
		if s.End(nil) || !s.Ended() || !errors.Is(context.Cause(in), errEnd) {
			t.Errorf("%s: ended %v, with the cause %v", name, s.Ended(), context.Cause(in))
		}
	}
}

func TestAnEndAtTheFirstUseIsNotMissed(t *testing.T) {
	for range 10_000 {
		var s lazyctx.State
		var both sync.WaitGroup
		both.Go(func() { s.End(errEnd) })
		in := s.Use(newInner(), errEnd)
		both.Wait()
		if in.Err() == nil {
			t.Fatal("the context has not ended")
		}
	}
}
