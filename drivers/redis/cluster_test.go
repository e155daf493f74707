package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

func TestClosingAClusterFromWhichAMasterHasLeft(t *testing.T) {
	c := newCluster(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	left, stays := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"}), goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	for _, master := range []*goredis.Client{left, stays} {
		if _, _, err := c.wire(master, "k"); err != nil {
			t.Fatal(err)
		}
	}
	c.forget(left)
	c.close()
	c.wait()
	_, _, _ = c.client.Close(), left.Close(), stays.Close()
}
