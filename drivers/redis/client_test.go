package redis_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

func TestClientConnectsToTheServerOfItsURL(t *testing.T) {
	for name, url := range map[string]string{
		"one server": shared.URL(),
		"sentinels":  redistest.StartSentinels(t, 1, redistest.Options{}).URL(),
		"cluster":    redistest.StartCluster(t, 3, redistest.Options{}).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			client, err := redis.NewClient(url)
			must(t, err)
			must(t, client.Set(t.Context(), "client", "here", 0).Err())
			if got, err := client.GetDel(t.Context(), "client").Result(); got != "here" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			must(t, client.Close())
		})
	}
}

func TestClientOfAURLThatCannotWorkIsRefused(t *testing.T) {
	for _, url := range []string{"", "redis://a,b", "redis-sentinel://a", "redis-cluster://a/1"} {
		if _, err := redis.NewClient(url); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%q: got %v", url, err)
		}
	}
}

// A client that repeats a refused connection has used up the time of a call, whose
// error then shows the time alone.
func TestADiagnosisNamesARefusedConnectionBehindADeadline(t *testing.T) {
	err := redis.Diagnose(t.Context(), "redis://"+redistest.FreeAddr(t), context.DeadlineExceeded)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}
