package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// DistantRole makes this program a Redis server and a network in front of it: it
// reads the round trip that the network adds, prints the address, and ends with its
// input. A network in the process of the contestants would have their scheduler.
const DistantRole = "distant"

// ServeDistant is the program of DistantRole.
func ServeDistant(_ context.Context, in io.Reader, out io.Writer) (err error) {
	var roundTrip time.Duration
	if err := json.NewDecoder(in).Decode(&roundTrip); err != nil {
		return fmt.Errorf("read the round trip: %w", err)
	}
	s, err := redistest.New(redistest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	network, err := redistest.NewProxy(s, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	network.Delay(redistest.Requests, roundTrip/2)
	network.Delay(redistest.Replies, roundTrip/2)
	return serve(network.Addr(), in, out)
}
