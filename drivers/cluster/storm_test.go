//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/boxes"
)

// Holders are killed while their own children live on: no box is prepared before
// it is clean, and nobody cleans a box that he has lost.
func TestNoBoxIsPreparedBeforeItIsCleanWhenHoldersAreKilled(t *testing.T) {
	t.Parallel()
	const batch = 50
	for left := suite.Scaled(batch); left > 0; left -= batch {
		t.Run("", func(t *testing.T) {
			h := newHub(t, HubConfig{})
			boxes.Storm{
				Kills: min(left, batch), Size: 6, TTL: 2 * time.Second, Locker: lockerOf(t, h),
				Start: func(t *testing.T, o boxes.Orders) boxes.Victim {
					return spawn(t, h, orders{Task: "boxes", Name: o.Name, Boxes: &o})
				},
			}.Run(t)
		})
	}
}

// The same while the hub is killed too, and followed by another one.
func TestNoBoxIsPreparedBeforeItIsCleanWhenHubsAreKilled(t *testing.T) {
	t.Parallel()
	p := openPost(t)
	l, err := openMember(t.Context(), Config{Socket: p.socket})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close(context.Background())) })
	boxes.Storm{
		Kills: suite.Scaled(16), Size: 6, TTL: 2 * time.Second, Locker: l,
		Start: func(t *testing.T, o boxes.Orders) boxes.Victim {
			return spawn(t, nil, orders{Task: "boxes", Name: o.Name, Socket: p.socket, Boxes: &o})
		},
		Restart: func() error { return errors.Join(p.kill(), p.restart()) },
	}.Run(t)
}
