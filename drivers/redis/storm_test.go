//go:build linux || darwin

package redis_test

import (
	"testing"
	"time"

	"github.com/megaframework/mega/internal/testkit/boxes"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// Holders are killed while their own children live on: no box is prepared before
// it is clean, and nobody cleans a box that he has lost. The slot of a killed
// holder costs its TTL, so the pool is larger than on a node.
func TestNoBoxIsPreparedBeforeItIsCleanWhenHoldersAreKilled(t *testing.T) {
	t.Parallel()
	const batch = 50
	for left := scaled(batch); left > 0; left -= batch {
		t.Run("", func(t *testing.T) {
			s := redistest.Start(t, redistest.Options{})
			boxes.Storm{
				Kills: min(left, batch), Size: 16, TTL: time.Second, Locker: member(t, s.URL()),
				Start: func(t *testing.T, o boxes.Orders) boxes.Victim {
					return spawn(t, orders{Task: "boxes", Name: o.Name, URL: s.URL(), Boxes: &o})
				},
			}.Run(t)
		})
	}
}
