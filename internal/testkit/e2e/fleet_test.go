//go:build linux || darwin

package e2e_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// Two nodes that start at once migrate one after the other.
func TestMigrationsOfTwoNodesNeverOverlap(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for round := range max(suite.Scaled(5), 2) {
		dir := t.TempDir()
		var nodes []*child
		for range 2 {
			nodes = append(nodes, startChild(t, "fleet", "MEGA_CLUSTER_WORKERS=2", "MEGA_CACHE_MAIN_URL="+server.URL(), "FLEET="+dir))
		}
		for _, c := range nodes {
			c.await(t, "boot.report", 1)
			if !strings.Contains(c.String(), `"primary":[{"name":"migrate","scope":"fleet","lock":"mega:primary::`) {
				t.Errorf("not in the report:\n%s", c)
			}
			c.signal(t, syscall.SIGTERM)
			c.follow()
		}
		for _, c := range nodes {
			if status := c.end(t); status != 0 {
				t.Errorf("round %d: exit status %d:\n%s", round, status, c)
			}
		}
		ran, err := filepath.Glob(filepath.Join(dir, "ran-*"))
		overlaps, err2 := filepath.Glob(filepath.Join(dir, "overlap"))
		if err != nil || err2 != nil || len(ran) != 2 || len(overlaps) > 0 {
			t.Fatalf("round %d: %d nodes migrated, %d overlaps", round, len(ran), len(overlaps))
		}
	}
}
