package nats_test

import (
	"net"
	"os"
	"testing"

	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

func TestMain(m *testing.M) {
	net.DefaultResolver = newResolver() //nolint:reassign // the driver looks up names with it
	if url := os.Getenv(workerURL); url != "" {
		os.Exit(worker(url, os.Getenv(workerTask)))
	}
	os.Exit(natstest.Main(m))
}
