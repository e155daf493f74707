package group

import (
	"context"
	"time"
)

// Sleep is the pause of a goroutine that ends with ctx. It reports whether it lasted
// for all of d.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
