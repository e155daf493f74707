//go:build linux || darwin

package guide_test

import (
	"path/filepath"
	"testing"
)

// The variables of the manifest are keys of a program, and its values are legal.
func TestVariablesOfTheManifestConfigureAProgram(t *testing.T) {
	secrets := map[string]string{
		"MEGA_CACHE_MAIN_URL": "redis://shop:secret@redis:6379/0", "MEGA_NATS_URL": "nats://shop:secret@nats-1:4222,nats://nats-2:4222",
		"MEGA_OPS_TOKEN": "7d3b0c52c21be6b6e0f0fb4c4cbbf6b1",
	}
	c := newConsole(t, "operated", "name: shop\n")
	check := c.command(filepath.Join(c.dir, "shop"), "config", "check")
	found := 0
	for _, m := range variable.FindAllStringSubmatch(read(t, "deploy/kubernetes.yaml"), -1) {
		value := m[2]
		if m[3] != "" {
			value = secrets[m[3]]
		}
		check.Env = append(check.Env, m[1]+m[3]+"="+value)
		found++
	}
	if out, err := check.CombinedOutput(); err != nil || found != 7 {
		t.Errorf("%d variables: %v\n%s", found, err, out)
	}
}
