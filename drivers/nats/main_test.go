package nats_test

import (
	"os"
	"testing"

	"github.com/megaframework/mega/internal/natstest"
)

func TestMain(m *testing.M) { os.Exit(natstest.Main(m)) }
