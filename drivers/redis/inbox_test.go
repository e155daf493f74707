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

// A user that may not ping may subscribe: the answer shows that the connection works.
func TestARefusedPingIsNoRefusedSubscription(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer client.Close()
	if _, err := s.Do("ACL", "SETUSER", "default", "-ping", "-subscribe"); err != nil {
		t.Fatal(err)
	}
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
