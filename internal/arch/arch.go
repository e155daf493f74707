// Package arch checks the structure of the repository: which package may import
// which, and what every package documents. Each rule is a function over facts: a
// test of the rule passes it a violation, and another test runs all rules on the
// repository.
package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Module is the path of the framework's module.
const Module = "github.com/megaframework/mega"

const (
	fx    = "go.uber.org/fx"
	koanf = "github.com/knadh/koanf"
)

// Package describes a Go package to the rules.
type Package struct {
	Path        string   // import path
	Name        string   // package clause
	Doc         string   // first sentence of the package doc
	Imports     []string // by its own files
	TestImports []string // by its tests, inside and outside the package
	Deps        []string // all packages in its binary
}

// Rule judges packages and returns a sentence for each violation.
type Rule func(pkgs []Package) []string

// layers returns, for each package of this repository, the packages that it may
// import, tests aside. A path ending in "/..." stands for a tree, and the longest
// match counts. A package that matches no line is a violation: its author adds a
// line for it.
func layers() map[string][]string {
	return map[string][]string{
		"lock/driver":           {},
		"lock":                  {"lock/driver", "lock/internal/...", "internal/group", "internal/histogram", "internal/lazyctx", "internal/outage"},
		"lock/internal/circle":  {},
		"lock/internal/cleaner": {"lock/driver", "internal/group"},
		"lock/locktest":         {"lock", "lock/driver", "internal/suite"},

		"lock/guard":            {"lock", "lock/driver", "bus"},
		"lock/guard/redisguard": {"lock", "lock/guard"},
		"lock/guard/guardtest":  {"lock", "drivers/memory"},
		"lock/guard/enginetest": {},

		"bus/driver":  {},
		"bus":         {"bus/driver", "internal/goroutine", "internal/group", "internal/lazyctx"},
		"bus/bustest": {"bus", "bus/driver", "internal/suite"},

		"limit/driver":    {"lock/driver"},
		"limit/limittest": {"limit", "limit/driver", "lock", "internal/suite"},
		"limit":           {"limit/driver", "lock", "lock/driver", "internal/group", "internal/histogram", "internal/outage", "internal/windows"},

		"megatest": {"", "boot", "bus", "bus/driver", "limit", "lock", "lock/driver", "drivers/memory", "internal/group", "internal/stack"},

		"drivers/cluster":                   {"lock/driver", "bus/driver", "limit/driver", "internal/windows", "drivers/cluster/...", "drivers/internal/...", "internal/group", "internal/private"},
		"drivers/cluster/internal/hub":      {"lock/driver", "bus/driver", "limit/driver", "internal/windows", "drivers/internal/...", "drivers/cluster/internal/protocol", "drivers/cluster/internal/rendezvous", "internal/private"},
		"drivers/cluster/internal/protocol": {"lock/driver", "bus/driver", "limit/driver", "internal/windows", "internal/group", "drivers/internal/nonblock", "drivers/internal/table"},
		"drivers/internal/nonblock":         {},
		"drivers/internal/routes":           {},
		"drivers/internal/table":            {"lock/driver"},
		"drivers/internal/tlsfiles":         {},

		"drivers/memory":                      {"lock/driver", "bus/driver", "limit/driver", "drivers/internal/...", "internal/windows"},
		"drivers/cluster/internal/rendezvous": {"internal/private"},
		"drivers/nats":                        {"bus/driver", "drivers/internal/nonblock", "drivers/internal/routes", "drivers/internal/tlsfiles", "internal/group", "internal/refusal"},
		"drivers/redis/...":                   {"lock/driver", "drivers/internal/nonblock", "drivers/internal/tlsfiles", "limit/driver", "drivers/redis/...", "internal/group", "internal/mask", "internal/refusal"},

		"config":     {"internal/mask", "internal/notation"},
		"ctx":        {"limit", "lock", "lock/driver", "bus", "bus/driver", "internal/input", "internal/request"},
		"ctx/locale": {"internal/embedded", "internal/yamldoc"},
		"boot/...":   {"config", "ctx", "ctx/locale", "drivers/memory", "limit", "limit/driver", "lock", "lock/driver", "bus", "bus/driver", "boot/...", "internal/admin", "internal/console", "internal/failure", "internal/group", "internal/listen", "internal/logging", "internal/mask", "internal/metrics", "internal/ops", "internal/plain", "internal/plan", "internal/request", "internal/router", "internal/secrets", "internal/selection", "internal/settings", "internal/stack", "internal/systemd", "internal/variable", "internal/workers"},

		"internal/cli": {"internal/notation", "internal/settings", "internal/shell", "internal/doctor", "internal/mask", "internal/plan", "internal/plain", "internal/spelling", "internal/failure", "boot", "config", "ctx", "bus", "limit", "lock", "lock/driver", "internal/admin", "internal/selection", "internal/variable", "internal/workers"},
		"":             {"internal/cli", "internal/plan", "boot", "config", "ctx", "ctx/locale", "lock", "lock/driver", "bus"},

		"cmd/mega-lock":            {"internal/shell"},
		"internal/shell/shelltest": {},
		"internal/shell":           {"limit/driver", "lock", "lock/driver", "drivers/cluster", "drivers/redis", "internal/group", "internal/mask", "internal/plain", "internal/private", "internal/spelling", "internal/variable"},

		"internal/mcp": {"internal/group", "internal/shell", "lock"},

		"cmd/mega": {"internal/cli", "internal/dev", "internal/failure", "internal/mcp", "internal/scaffold", "internal/shell", "lock", "drivers/redis"},

		"sample/...": {"", "lock", "lock/guard", "limit", "bus", "sample/..."},
		"bench/...":  {"lock", "lock/driver", "lock/guard", "limit", "limit/limittest", "bus", "drivers/...", "internal/testkit/nats", "internal/testkit/redis", "bench/..."},

		"internal/selection": {"internal/settings", "config", "limit/driver", "lock", "lock/driver", "bus", "bus/driver", "drivers/...", "internal/failure", "internal/mask", "internal/notation", "internal/plan", "internal/refusal"},

		"docs/guide":        {},
		"internal/admin":    {"config", "limit", "lock", "bus", "internal/private", "internal/variable"},
		"internal/arch":     {},
		"internal/dev":      {"internal/group"},
		"internal/console":  {"limit", "lock", "bus", "internal/admin", "internal/logging", "internal/ops", "internal/plain", "internal/plan"},
		"internal/doctor":   {"internal/settings", "config", "drivers/redis", "internal/admin", "internal/failure", "internal/listen", "internal/plan", "internal/secrets", "internal/selection", "lock/driver"},
		"internal/embedded": {},
		"internal/group":    {},
		"internal/failure":  {"internal/settings", "internal/plain", "config", "internal/mask"},
		"internal/input":    {"internal/request"},
		"internal/listen":   {"internal/settings", "config", "internal/failure", "internal/request", "internal/router"},
		"internal/logging":  {"internal/settings", "bus", "config", "limit", "internal/plain", "internal/request", "internal/secrets", "internal/stack", "lock"},
		"internal/scaffold": {},
		"internal/secrets":  {"internal/settings", "config", "internal/mask", "internal/plain"},
		"internal/settings": {"config", "internal/mask", "internal/notation", "internal/spelling", "internal/yamldoc"},
		"internal/spelling": {},
		"internal/mask":     {},
		"internal/notation": {"internal/mask"},
		"internal/metrics":  {"limit", "lock", "bus"},
		"internal/ops":      {"internal/settings", "config", "internal/admin", "internal/listen", "internal/metrics", "internal/request", "internal/workers"},
		"internal/outage":   {"internal/group"},
		"internal/plain":    {},
		"internal/plan":     {"internal/settings", "bus", "config", "ctx", "ctx/locale", "limit", "internal/failure", "internal/mask", "internal/plain", "internal/request", "internal/router", "lock", "lock/driver"},
		"internal/private":  {},
		"internal/refusal":  {},
		"internal/request":  {"bus", "ctx/locale", "internal/embedded", "internal/lazyctx", "internal/mask", "internal/spelling", "internal/stack", "limit", "lock"},
		"internal/router":   {"ctx", "internal/request"},
		"internal/windows":  {"limit/driver"},
		"internal/workers":  {"internal/settings", "config", "drivers/cluster", "internal/failure", "internal/listen", "internal/systemd"},
		"internal/stack":    {},
		"internal/suite":    {},
		"internal/systemd":  {},
		"internal/variable": {},

		"internal/histogram": {},
		"internal/lazyctx":   {},
		"internal/yamldoc":   {},
		"internal/goroutine": {},

		"internal/testkit/boxes":       {"lock", "internal/testkit/history", "internal/testkit/redis"},
		"internal/testkit/certificate": {},
		"internal/testkit/database":    {"internal/testkit/redis"},
		"internal/testkit/e2e":         {},
		"internal/testkit/grants":      {},
		"internal/testkit/history":     {"lock", "lock/driver"},
		"internal/testkit/mutants":     {},
		"internal/testkit/nats":        {"internal/testkit/redis"},
		"internal/testkit/otheruser":   {},
		"internal/testkit/output":      {},
		"internal/testkit/page":        {},
		"internal/testkit/redis":       {"internal/testkit/certificate"},
		"internal/testkit/shortdir":    {},
		"internal/testkit/soak":        {"bus", "lock", "drivers/cluster", "internal/testkit/history"},
		"internal/testkit/subprocess":  {"internal/testkit/redis"},
		"internal/testkit/ticks":       {},
		"internal/testkit/wallclock":   {},
	}
}

// Lattice reports imports that layers does not allow.
func Lattice(pkgs []Package) (broken []string) {
	layers := layers()
	for _, p := range pkgs {
		from, ours := local(p.Path)
		if !ours {
			continue
		}
		layer, known := layerOf(layers, from)
		if !known {
			broken = append(broken, fmt.Sprintf("%s has no layer: add a line with the packages that it may import", p.Path))
			continue
		}
		for _, path := range p.Imports {
			to, ours := local(path)
			if ours && !allows(layers[layer], to) {
				broken = append(broken, fmt.Sprintf("%s imports %s, which is not below it", p.Path, path))
			}
		}
	}
	return broken
}

// fronts returns the packages that depend on the standard library only, and on
// the packages below them.
func fronts() map[string][]string {
	return map[string][]string{
		"lock":               {"lock/driver", "lock/internal/circle", "lock/internal/cleaner", "internal/group", "internal/histogram", "internal/lazyctx", "internal/outage"},
		"bus":                {"bus/driver", "internal/goroutine", "internal/group", "internal/lazyctx"},
		"limit":              {"limit/driver", "lock", "lock/driver", "lock/internal/circle", "lock/internal/cleaner", "internal/group", "internal/histogram", "internal/lazyctx", "internal/outage", "internal/windows"},
		"internal/group":     {},
		"internal/histogram": {},
		"internal/lazyctx":   {},
		"internal/outage":    {"internal/group"},
		"internal/windows":   {"limit/driver", "lock/driver"},

		"internal/goroutine": {},
	}
}

// StandardOnly reports dependencies, direct and indirect, of the fronts, their
// boundaries and the goroutine groups that are not in the standard library.
func StandardOnly(pkgs []Package) (broken []string) {
	for _, p := range pkgs {
		front, ours := local(strings.TrimSuffix(p.Path, "/driver"))
		below, watched := fronts()[front]
		if !ours || !watched {
			continue
		}
		for _, dep := range p.Deps {
			if to, ours := local(dep); !standard(dep) && (!ours || !slices.Contains(below, to)) {
				broken = append(broken, fmt.Sprintf("%s depends on %s; it may depend on the standard library only", p.Path, dep))
			}
		}
	}
	return broken
}

// FxUnderBoot reports imports of fx outside boot, by tests too: every other
// package works without fx.
func FxUnderBoot(pkgs []Package) (broken []string) {
	return confined(pkgs, fx, "only boot may import fx", "boot/...")
}

// KoanfUnderConfig reports imports of koanf outside config and internal/settings,
// by tests too: every other package gets its values from them.
func KoanfUnderConfig(pkgs []Package) (broken []string) {
	return confined(pkgs, koanf, "only config and internal/settings may import koanf", "config", "internal/settings")
}

// ProtocolInTheTool reports packages that link the Model Context Protocol besides
// the tool: applications must not carry it.
func ProtocolInTheTool(pkgs []Package) (broken []string) {
	for _, p := range pkgs {
		from, _ := local(p.Path)
		if from == "internal/mcp" || from == "cmd/mega" {
			continue
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "github.com/modelcontextprotocol/") {
				broken = append(broken, fmt.Sprintf("%s depends on %s; only cmd/mega may link it", p.Path, dep))
			}
		}
	}
	return broken
}

// SmallBinary reports what makes cmd/mega-lock large or slow to start: it is for
// scripts, cron and containers.
func SmallBinary(pkgs []Package) (broken []string) {
	for _, p := range pkgs {
		if path, _ := local(p.Path); path != "cmd/mega-lock" {
			continue
		}
		for _, dep := range p.Deps {
			for _, large := range []string{"net/http", fx, koanf, "go.opentelemetry.io/otel", "github.com/spf13/cobra", Module + "/boot"} {
				if dep == large || strings.HasPrefix(dep, large+"/") {
					broken = append(broken, fmt.Sprintf("%s depends on %s; it must stay small", p.Path, dep))
				}
			}
		}
	}
	return broken
}

// confined reports imports of a module, or of a part of it, outside its homes.
func confined(pkgs []Package, module, why string, homes ...string) (broken []string) {
	for _, p := range pkgs {
		from, _ := local(p.Path)
		if allows(homes, from) {
			continue
		}
		for _, path := range slices.Concat(p.Imports, p.TestImports) {
			if path == module || strings.HasPrefix(path, module+"/") {
				broken = append(broken, fmt.Sprintf("%s imports %s; %s", p.Path, path, why))
			}
		}
	}
	return broken
}

// Documented reports packages without a package doc, the first text that a
// reader sees.
func Documented(pkgs []Package) (broken []string) {
	for _, p := range pkgs {
		if p.Doc == "" {
			broken = append(broken, fmt.Sprintf("%s has no package doc", p.Path))
		}
	}
	return broken
}

// Named reports packages with a name that fits any content.
func Named(pkgs []Package) (broken []string) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "manager", "types", "base"}
	for _, p := range pkgs {
		for word := range strings.SplitSeq(p.Path+"/"+p.Name, "/") {
			if slices.Contains(vague, word) {
				broken = append(broken, fmt.Sprintf("%s: %q does not describe the content of the package", p.Path, word))
				break
			}
		}
	}
	return broken
}

// local returns a path relative to the module, "" for its root.
func local(path string) (string, bool) {
	if path == Module {
		return "", true
	}
	return strings.CutPrefix(path, Module+"/")
}

// standard reports whether a path is of the standard library: its first element has
// no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// layerOf returns the longest line of layers that matches.
func layerOf(layers map[string][]string, path string) (string, bool) {
	best, found := "", false
	for _, l := range slices.Sorted(maps.Keys(layers)) {
		if within(path, l) && len(l) >= len(best) {
			best, found = l, true
		}
	}
	return best, found
}

func allows(layer []string, path string) bool {
	return slices.ContainsFunc(layer, func(l string) bool { return within(path, l) })
}

// within reports whether path is the pattern, or in the tree that it names.
func within(path, pattern string) bool {
	tree, isTree := strings.CutSuffix(pattern, "/...")
	return path == tree || isTree && strings.HasPrefix(path, tree+"/")
}
