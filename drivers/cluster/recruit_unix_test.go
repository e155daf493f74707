//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A process with Recruit is a client only, also when its hub has left.
func TestANodeThatRecruitsDoesNotBecomeTheHub(t *testing.T) {
	socket := socketPath(t)
	hub := meetAt(t, socket)
	called := make(chan struct{}, 1) // Recruit may be called again while the new hub starts
	n, err := Dial(t.Context(), Config{Socket: socket, Recruit: func(context.Context) error {
		select {
		case called <- struct{}{}:
			meetAt(t, socket)
		default:
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if count, here := hub.Clients(); count != 2 || !here {
		t.Errorf("the hub has %d clients, %v", count, here)
	}
	if err := hub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		err := n.Ping(t.Context()) // it fails until the node has noticed the end of the hub
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if n.hasHub() || len(called) != 1 {
		t.Errorf("it is the hub: %v; it has recruited %d times", n.hasHub(), len(called))
	}
}

func TestDialReturnsTheErrorOfRecruit(t *testing.T) {
	failed := errors.New("no program to start")
	_, err := Dial(t.Context(), Config{Socket: socketPath(t), Recruit: func(context.Context) error { return failed }})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
}
