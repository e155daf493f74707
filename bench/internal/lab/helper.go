package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/megaframework/mega/drivers/cluster"
)

// HubRole makes this program a hub.
const HubRole = "hub"

// Meeting holds the addresses that the processes of a row share.
type Meeting struct{ Socket, NATS, Key, File string }

// ServeHub is the program of HubRole, until in ends.
func ServeHub(ctx context.Context, in io.Reader, out io.Writer) error {
	return ServeAt(in, out, func(at Meeting) (func() error, error) {
		n, err := cluster.Dial(ctx, cluster.Config{Socket: at.Socket}) // the first process becomes the hub
		if err != nil {
			return nil, err
		}
		return func() error { return n.Close(context.Background()) }, nil
	})
}

// ServeAt runs a process that reads its addresses from its first line of input,
// writes "ready", and ends with its input.
func ServeAt(in io.Reader, out io.Writer, open func(Meeting) (func() error, error)) error {
	var at Meeting
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &at); err != nil {
		return err
	}
	end, err := open(at)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	_, err = io.Copy(io.Discard, lines)
	return errors.Join(err, end())
}

// Helper is such a process, from the side of its parent.
type Helper struct{ *child }

// StartHelper starts a process that plays a role of ServeAt, and waits until it
// is ready.
func StartHelper(role string, at Meeting) (*Helper, error) {
	c, err := start(role)
	if err != nil {
		return nil, err
	}
	err = json.NewEncoder(c.in).Encode(at)
	if err == nil {
		_, err = bufio.NewReader(c.out).ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a %s: %w", role, err), c.Stop())
	}
	return &Helper{c}, nil
}
