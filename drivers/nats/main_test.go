package nats_test

import (
	"os"
	"testing"

	"github.com/megaframework/mega/internal/natstest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workerURL); url != "" {
		os.Exit(worker(url, os.Getenv(workerTask)))
	}
	os.Exit(natstest.Main(m))
}
