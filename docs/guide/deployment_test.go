package guide_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// What 12-deployment.md shows: the files in docs/guide/deploy. The manifests of
// Kubernetes and the Dockerfile are checked by internal/testkit/browser.

// linesOf returns the lines of a file without comments.
func linesOf(t *testing.T, file string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(read(t, file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A real server starts with the settings, and the driver has no warning about
// it but the one that every server with replicas has.
func TestRedisRunsWithTheSettings(t *testing.T) {
	conf := redistest.Options{Config: linesOf(t, "deploy/redis.conf")}
	master := redistest.Start(t, conf)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := conf
	replica.Config = append(slices.Clip(replica.Config), "replicaof "+host+" "+port)
	redistest.Start(t, replica)
	awaitReplica(t, master)
	d, err := redis.OpenLock(t.Context(), redis.Config{URL: master.URL()})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := lock.New(d, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	if w := locks.Info().Warnings; len(w) != 1 || !strings.Contains(w[0], "replicas (1)") {
		t.Errorf("the driver warns: %q", w)
	}
	if err := locks.With(t.Context(), "order:1", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// awaitReplica waits until a master has a replica that is not behind.
func awaitReplica(t *testing.T, master *redistest.Server) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		info, err := master.Info("replication")
		if err != nil {
			t.Fatal(err)
		}
		if info["min_slaves_good_slaves"] == "1" {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("the replica is missing: %v", info)
		}
	}
}

// A real server runs with the file, alone and on free ports, and a program has
// the permissions that it needs.
func TestNATSRunsWithTheSettings(t *testing.T) {
	t.Setenv("SHOP_NATS_PASSWORD", "secret")
	options, err := server.ProcessConfigFile("deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if len(options.Routes) != 3 || options.Cluster.Name != "shop" || options.MaxPayload != 1<<20 {
		t.Errorf("the server reads %d routes of %q, %d bytes", len(options.Routes), options.Cluster.Name, options.MaxPayload)
	}
	options.Host, options.Port, options.HTTPPort = "127.0.0.1", server.RANDOM_PORT, 0
	options.Routes, options.Cluster, options.NoLog, options.NoSigs = nil, server.ClusterOpts{}, true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: s.ClientURL(), User: "shop", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	sold := make(chan struct{})
	if _, err := b.Subscribe(t.Context(), "product.*", func(context.Context, *bus.Msg) error { close(sold); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Respond(t.Context(), "stock.get", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("3"), nil }); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), "product.sold", nil); err != nil {
		t.Fatal(err)
	}
	<-sold
	if _, err := b.Request(t.Context(), "stock.get", nil); err != nil {
		t.Error(err)
	}
}

func TestNATSRefusesAMistakeInTheSettings(t *testing.T) {
	t.Setenv("SHOP_NATS_PASSWORD", "secret")
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(strings.Replace(read(t, "deploy/nats.conf"), "max_pending", "max_pendign", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ProcessConfigFile(file); err == nil {
		t.Error("an unknown setting is accepted")
	}
}

// The page shows a part of a file.
func TestThePageOnDeploymentShowsLinesOfTheFiles(t *testing.T) {
	page := read(t, "12-deployment.md")
	for language, file := range map[string]string{"ini": "deploy/shop.service", "yaml": "deploy/kubernetes.yaml"} {
		blocks, text := fenced(page, language), flat(read(t, file))
		for line := range strings.Lines(blocks[len(blocks)-1]) {
			if !strings.Contains(text, "\n"+strings.TrimSpace(line)+"\n") {
				t.Errorf("%s has no line %s", file, line)
			}
		}
	}
}

// variable matches a variable of a program in an operators' file.
var variable = regexp.MustCompile(`\{name: (MEGA_\w+), value: "?([^"}]+)"?\}|name: (MEGA_\w+)\n`)
