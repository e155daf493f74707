package mcp

import (
	"context"
	"errors"
	"testing"
)

func TestACancelledCallDoesNotWaitForTheConnectionOfAnother(t *testing.T) {
	s := &server{opening: make(chan struct{}, 1)}
	s.opening <- struct{}{} // another call connects
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.open(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
