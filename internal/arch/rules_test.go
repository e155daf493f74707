package arch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/arch"
)

const mod = arch.Module + "/"

// Each rule is shown a repository that keeps it and one that does not, so that
// a rule which has gone blind is found out.
func TestEachRuleSeesItsViolation(t *testing.T) {
	clean := []arch.Package{
		{Path: mod + "lock/driver", Name: "driver", Doc: "The boundary.", Imports: []string{"time"}, Deps: []string{"time"}},
		{Path: mod + "lock", Name: "lock", Doc: "Locks.", Imports: []string{"context", mod + "lock/driver"}, Deps: []string{"internal/abi", mod + "lock/driver"}},
		{Path: mod + "drivers/redis", Name: "redis", Doc: "Redis.", Imports: []string{"github.com/redis/go-redis/v9", mod + "lock/driver"}, TestImports: []string{mod + "lock/locktest"}},
		{Path: mod + "boot", Name: "boot", Doc: "Boot.", Imports: []string{"go.uber.org/fx", mod + "internal/selection"}},
		{Path: mod + "internal/selection", Name: "selection", Doc: "Selection.", Imports: []string{mod + "drivers/redis", mod + "drivers/memory"}},
		{Path: mod + "sample/crud", Name: "main", Doc: "Command crud.", Imports: []string{arch.Module}},
	}
	for _, tt := range []struct {
		name string
		rule arch.Rule
		bad  arch.Package
		want string
	}{
		{"lock imports a driver", arch.Lattice, arch.Package{Path: mod + "lock", Imports: []string{mod + "drivers/memory"}}, "lock imports"},
		{"the boundary imports the front", arch.Lattice, arch.Package{Path: mod + "lock/driver", Imports: []string{mod + "lock"}}, "lock/driver imports"},
		{"a driver imports the front", arch.Lattice, arch.Package{Path: mod + "drivers/redis", Imports: []string{mod + "lock"}}, "drivers/redis imports"},
		{"a driver imports another", arch.Lattice, arch.Package{Path: mod + "drivers/redis", Imports: []string{mod + "drivers/memory"}}, "drivers/redis imports"},
		{"the context names a backend", arch.Lattice, arch.Package{Path: mod + "ctx", Imports: []string{mod + "drivers/memory"}}, "ctx imports"},
		{"boot names a backend", arch.Lattice, arch.Package{Path: mod + "boot", Imports: []string{mod + "drivers/nats"}}, "boot imports"},
		{"a sample names a backend", arch.Lattice, arch.Package{Path: mod + "sample/crud", Imports: []string{mod + "drivers/redis"}}, "sample/crud imports"},
		{"lock imports config", arch.Lattice, arch.Package{Path: mod + "lock", Imports: []string{mod + "config"}}, "lock imports"},
		{"a package without a layer", arch.Lattice, arch.Package{Path: mod + "attic"}, "has no layer"},
		{"lock depends on a third party", arch.StandardOnly, arch.Package{Path: mod + "lock", Deps: []string{"context", "golang.org/x/sys/unix"}}, "standard library only"},
		{"lock depends on its own suite", arch.StandardOnly, arch.Package{Path: mod + "lock", Deps: []string{mod + "lock/locktest"}}, "standard library only"},
		{"bus depends on lock", arch.StandardOnly, arch.Package{Path: mod + "bus", Deps: []string{mod + "bus/driver", mod + "lock/driver"}}, "standard library only"},
		{"the boundary of the bus depends on a third party", arch.StandardOnly, arch.Package{Path: mod + "bus/driver", Deps: []string{"github.com/nats-io/nats.go"}}, "standard library only"},
		{"lock imports fx", arch.FxUnderBoot, arch.Package{Path: mod + "lock", Imports: []string{"go.uber.org/fx"}}, "only boot may import fx"},
		{"a test imports a part of fx", arch.FxUnderBoot, arch.Package{Path: mod + "ctx", TestImports: []string{"go.uber.org/fx/fxtest"}}, "only boot may import fx"},
		{"boot imports koanf", arch.KoanfUnderConfig, arch.Package{Path: mod + "boot", Imports: []string{"github.com/knadh/koanf/v2"}}, "only config and internal/settings may import koanf"},
		{"an application links the protocol of agents", arch.ProtocolInTheTool, arch.Package{Path: mod + "boot", Deps: []string{"github.com/modelcontextprotocol/go-sdk/mcp"}}, "only cmd/mega may link it"},
		{"the small binary serves HTTP", arch.SmallBinary, arch.Package{Path: mod + "cmd/mega-lock", Deps: []string{"os", "net/http"}}, "must stay small"},
		{"a name that only begins like boot", arch.FxUnderBoot, arch.Package{Path: mod + "bootstrap", Imports: []string{"go.uber.org/fx"}}, "only boot may import fx"},
		{"no package doc", arch.Documented, arch.Package{Path: mod + "lock", Name: "lock"}, "no package doc"},
		{"a folder called util", arch.Named, arch.Package{Path: mod + "lock/util", Name: "lockutil"}, `"util"`},
		{"a package called helpers", arch.Named, arch.Package{Path: mod + "lock/aid", Name: "helpers"}, `"helpers"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rule(clean); len(got) != 0 {
				t.Errorf("a clean repository is refused: %q", got)
			}
			got := tt.rule(append(slices.Clip(clean), tt.bad))
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("got %q, want one violation with %q", got, tt.want)
			}
		})
	}
}

func TestSourceRulesSeeTheirViolations(t *testing.T) {
	for _, tt := range []struct {
		name string
		rule func(file, text string) []string
		file string
		text string
		want int
	}{
		{"a home directory", arch.LocalPaths, "a.md", "see /ho" + "me/ann/notes", 1},
		{"two paths on two lines", arch.LocalPaths, "a.md", "x\n\"/tm" + "p/a\"\n(/Use" + "rs/b)", 2},
		{"a URL's path", arch.LocalPaths, "a.md", "https://example.com/ho" + "me/page", 0},
		{"a directory of the repository", arch.LocalPaths, "a.md", "lock/driver and /products/{id}", 0},
		{"an init function", arch.Unconditional, "a.go", "package a\nfunc init() {}", 1},
		{"a method called init", arch.Unconditional, "a.go", "package a\ntype t int\nfunc (t) init() {}", 0},
		{"a test that skips", arch.Unconditional, "a_test.go", "package a\nfunc f(t T) { t.Sk" + "ip() }", 1},
		{"a test passed as a value", arch.Unconditional, "a_test.go", "package a\nfunc f(t T) { defer g(t.SkipNow) }", 1},
		{"a reader that skips", arch.Unconditional, "a.go", "package a\nfunc f(r R) { r.Skip() }", 0},
		{"a file that does not parse", arch.Unconditional, "a.go", "package", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rule(tt.file, tt.text); len(got) != tt.want {
				t.Errorf("got %q, want %d violations", got, tt.want)
			}
		})
	}
}
