package redis

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

func TestASubscriptionThatTwoFindDeadIsReplacedOnce(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	in := newInbox(client, nil, nil, nil)
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
