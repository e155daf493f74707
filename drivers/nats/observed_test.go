package nats_test

import (
	"context"
	"sync"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
)

// events collects what the observer of a bus is given.
type events struct {
	mu  sync.Mutex // guards all
	all []bus.Event
}

// Observe implements [bus.Observer].
func (e *events) Observe(event bus.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// of returns the events of a type.
func of[E bus.Event](e *events) (found []E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event, ok := event.(E); ok {
			found = append(found, event)
		}
	}
	return found
}

// observe opens a bus whose events are collected.
func observe(t *testing.T, c nats.Config) (*bus.Bus, *events) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := nats.OpenBus(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	e := &events{}
	b, err := bus.New(d, bus.Config{Observer: e})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b, e
}

// connected waits until the bus has a connection after so many cuts.
func connected(t *testing.T, b *bus.Bus, cuts uint64) {
	t.Helper()
	await(t, func() bool {
		if b.Stats().Cuts < cuts { // before the state, which may still be that from before the cut
			return false
		}
		state, _ := b.State()
		return state == bus.StateConnected
	})
}
