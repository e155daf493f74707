package peers

import (
	"context"
	"errors"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/lock"
)

// OpenNode is mega on a cluster, as its users open it.
func OpenNode(ctx context.Context, socket string) (*lock.Locker, error) {
	n, err := cluster.Dial(ctx, cluster.Config{Socket: socket})
	if err != nil {
		return nil, err
	}
	return lock.New(wholeLock{n.Lock(), n}, lock.Config{TTL: TTL})
}

// wholeLock is a node's lock that ends with the node.
type wholeLock struct {
	*cluster.Lock
	node *cluster.Node
}

func (w wholeLock) Close(ctx context.Context) error {
	return errors.Join(w.Lock.Close(ctx), w.node.Close(ctx))
}
