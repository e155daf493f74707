//go:build linux || darwin

package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/boxes"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// Holders are killed while their own children live on: no box is prepared before
// it is clean, and nobody cleans a box that he has lost. The slot of a killed
// holder costs its TTL, so the pool is larger than on a node.
func TestNoBoxIsPreparedBeforeItIsCleanWhenHoldersAreKilled(t *testing.T) {
	t.Parallel()
	const batch = 50
	for left := suite.Scaled(batch); left > 0; left -= batch {
		t.Run("", func(t *testing.T) {
			stormAt(t, redistest.Start(t, redistest.Options{}), min(left, batch)).Run(t)
		})
	}
}

// The same while the server is killed too, which keeps its data.
func TestNoBoxIsPreparedBeforeItIsCleanWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	storm := stormAt(t, s, suite.Scaled(12))
	storm.Restart = func() error { return errors.Join(s.Kill(), s.Restart()) }
	storm.Run(t)
}

func stormAt(t *testing.T, s *redistest.Server, kills int) boxes.Storm {
	t.Helper()
	return boxes.Storm{
		Kills: kills, Size: 16, TTL: time.Second, Locker: member(t, s.URL()),
		Start: func(t *testing.T, o boxes.Orders) boxes.Victim {
			return spawn(t, orders{Task: "boxes", Name: o.Name, URL: s.URL(), Boxes: &o})
		},
	}
}
