package redis

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestASubscriptionThatTwoFindDeadIsReplacedOnce(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	in := newInbox(&connection{client: client}, nil, nil, nil, nil)
	dead := client.Subscribe(context.Background())
	in.sub = dead
	in.replace(dead)
	second, _ := in.current()
	in.replace(dead)
	if now, _ := in.current(); now != second || now == dead {
		t.Error("the closed subscription is back")
	}
	in.close()
	_ = client.Close()
}

// A user that may not ping may subscribe: the answer shows that the connection works. So
// may the users of a server that has disabled PING.
func TestARefusedPingIsNoRefusedSubscription(t *testing.T) {
	denied, disabled := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{
		Config: []string{`rename-command ping ""`, `rename-command subscribe ""`},
	})
	if _, err := denied.Do("ACL", "SETUSER", "default", "-ping", "-subscribe"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*redistest.Server{denied, disabled} {
		client := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Protocol: 2})
		defer client.Close()
		sub := client.Subscribe(t.Context(), "inbox")
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err == nil || refusesPing(err) {
			t.Errorf("subscribe: %v", err)
		}
		if err := sub.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Receive(t.Context()); err == nil || !refusesPing(err) {
			t.Errorf("ping: %v", err)
		}
	}
}
