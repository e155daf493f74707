package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
)

// A worker that outlives its supervisor has nothing to rely on: the next one
// begins with an empty table, and may come at once.
func TestLeasesEndWithAHubThatDoesNotComeBack(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	l, err := lock.New(n.Lock(), lock.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	began := time.Now()
	err = l.With(t.Context(), "key", func(ctx context.Context) error {
		go func() { _ = h.Close(context.Background()) }()
		<-ctx.Done()
		return nil
	})
	if lost, ok := errors.AsType[*lock.LostError](err); !ok || lost.Cause != lock.Unreachable {
		t.Errorf("With returned %v, want that the lease was lost with its hub", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the lease ended after %v, with a TTL of a minute", took)
	}
}

// A program that ends because its hub does not come back has cut off nothing, unless
// it has messages for the hub (S21).
func TestDrainWithoutAHubReportsOnlyMessages(t *testing.T) {
	for _, late := range []bool{false, true} {
		h := newHub(t, HubConfig{})
		n, _ := join(t, h, Config{})
		b, err := bus.New(n.Bus(), bus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Publish(t.Context(), "a", nil), b.Flush(t.Context()), h.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		<-n.Done()
		if late {
			err = b.Publish(t.Context(), "a", nil)
		}
		if drained := b.Drain(t.Context()); err != nil || errors.Is(drained, bus.ErrDisconnected) != late {
			t.Errorf("Drain returned %v after the publish of a message without a hub is %v, %v", drained, late, err)
		}
	}
}
