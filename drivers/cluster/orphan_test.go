package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

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
