package group

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep is the pause of a goroutine that ends with ctx. It reports whether ctx has not
// ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil // both may have happened
}

// Jitter returns d changed at random by up to a fifth, so that processes that
// failed together do not retry together.
func Jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1)
}
