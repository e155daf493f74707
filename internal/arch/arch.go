// Package arch holds the rules of the house: who may import whom, and what
// every package owes its readers. Each rule is a function over facts, so that
// its test can feed it a violation and see it refused; the same functions then
// judge the repository.
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

// Package is what the rules know of a Go package.
type Package struct {
	Path        string   // import path
	Name        string   // package clause
	Doc         string   // first sentence of the package doc
	Imports     []string // by its own files
	TestImports []string // by its tests, inside and outside the package
	Deps        []string // all that it is linked with
}

// Rule judges packages and returns a sentence for each violation.
type Rule func(pkgs []Package) []string

// layers says which packages of this repository the code of a package may
// import, tests aside. A path ending in "/..." stands for a tree, the longest
// match counts, and one that matches nothing here may not exist: a new package
// gets a line, and with it a decision.
func layers() map[string][]string {
	return map[string][]string{
		"lock/driver":   {},
		"lock":          {"lock/driver", "internal/group"},
		"lock/locktest": {"lock", "lock/driver", "internal/suite"},

		"lock/guard":            {"lock", "bus"},
		"lock/guard/redisguard": {"lock", "lock/guard"},
		"lock/guard/enginetest": {},

		"bus/driver":  {},
		"bus":         {"bus/driver", "internal/group"},
		"bus/bustest": {"bus", "bus/driver", "internal/suite"},

		"megatest": {"", "boot", "bus", "bus/driver", "lock", "lock/driver", "drivers/memory"},

		"drivers/cluster":                   {"lock/driver", "bus/driver", "drivers/cluster/...", "drivers/internal/...", "internal/private"},
		"drivers/cluster/internal/hub":      {"lock/driver", "bus/driver", "drivers/internal/...", "drivers/cluster/internal/protocol", "drivers/cluster/internal/rendezvous", "internal/private"},
		"drivers/cluster/internal/protocol": {"lock/driver", "bus/driver", "drivers/internal/table"},
		"drivers/internal/routes":           {},
		"drivers/internal/table":            {"lock/driver"},

		"drivers/memory":                      {"lock/driver", "bus/driver", "drivers/internal/..."},
		"drivers/cluster/internal/rendezvous": {"internal/private"},
		"drivers/nats":                        {"bus/driver"},
		"drivers/redis":                       {"lock/driver", "drivers/redis/...", "internal/mask"},
		"drivers/redis/...":                   {"lock/driver", "drivers/redis/...", "internal/mask"},

		"config":     {"internal/mask", "internal/spelling"},
		"ctx":        {"lock", "lock/driver", "bus", "bus/driver", "ctx/locale", "internal/embedded"},
		"ctx/locale": {"internal/embedded"},
		"boot/...":   {"config", "ctx", "ctx/locale", "lock", "lock/driver", "bus", "bus/driver", "boot/...", "internal/admin", "internal/failure", "internal/listen", "internal/logging", "internal/mask", "internal/metrics", "internal/ops", "internal/plan", "internal/secrets", "internal/selection", "internal/systemd", "internal/workers"},

		"internal/cli": {"internal/doctor", "internal/mask", "internal/plan", "internal/plain", "internal/spelling", "internal/failure", "boot", "config", "ctx", "bus", "lock", "lock/driver", "internal/admin", "internal/selection"},
		"":             {"internal/cli", "boot", "config", "ctx", "ctx/locale", "lock", "bus"},

		"cmd/mega": {"internal/cli", "internal/scaffold", "boot", "lock", "drivers/redis"},

		"sample/...": {"", "lock", "bus", "sample/..."},
		"bench/...":  {"lock", "lock/driver", "bus", "drivers/...", "internal/testkit/nats", "internal/testkit/redis", "bench/..."},

		"internal/selection": {"config", "lock", "lock/driver", "bus", "bus/driver", "drivers/...", "internal/failure", "internal/mask", "internal/plan"},

		"docs/guide":        {},
		"internal/admin":    {"lock", "bus", "internal/private"},
		"internal/arch":     {},
		"internal/doctor":   {"config", "drivers/redis", "internal/admin", "internal/failure", "internal/listen", "internal/plan", "internal/secrets", "internal/selection", "lock/driver"},
		"internal/embedded": {},
		"internal/group":    {},
		"internal/failure":  {"internal/plain", "config", "internal/mask"},
		"internal/listen":   {"config", "ctx", "internal/failure"},
		"internal/logging":  {"bus", "config", "internal/secrets", "lock"},
		"internal/scaffold": {},
		"internal/secrets":  {"config", "internal/mask"},
		"internal/spelling": {},
		"internal/mask":     {},
		"internal/metrics":  {"lock", "bus"},
		"internal/ops":      {"config", "internal/listen", "internal/metrics"},
		"internal/plain":    {},
		"internal/plan":     {"bus", "config", "ctx", "ctx/locale", "internal/failure", "internal/mask", "lock", "lock/driver"},
		"internal/private":  {},
		"internal/workers":  {"config", "drivers/cluster", "internal/failure", "internal/listen", "internal/systemd"},
		"internal/suite":    {},
		"internal/systemd":  {},

		"internal/testkit/e2e":     {},
		"internal/testkit/history": {"lock"},
		"internal/testkit/nats":    {"internal/testkit/redis"},
		"internal/testkit/page":    {},
		"internal/testkit/redis":   {},
		"internal/testkit/soak":    {"bus", "lock", "drivers/cluster", "internal/testkit/history"},
	}
}

// Lattice holds each package to its line in layers.
func Lattice(pkgs []Package) (broken []string) {
	layers := layers()
	for _, p := range pkgs {
		from, ours := local(p.Path)
		if !ours {
			continue
		}
		layer, known := layerOf(layers, from)
		if !known {
			broken = append(broken, fmt.Sprintf("%s has no layer: give it a line that says what it may import", p.Path))
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

// StandardOnly holds the fronts and their boundaries to the standard library,
// through everything that they are linked with. The goroutine groups, which the
// fronts share, are held to it too.
func StandardOnly(pkgs []Package) (broken []string) {
	for _, p := range pkgs {
		front, ours := local(strings.TrimSuffix(p.Path, "/driver"))
		if !ours || front != "lock" && front != "bus" && front != "internal/group" {
			continue
		}
		for _, dep := range p.Deps {
			if !standard(dep) && dep != Module+"/"+front+"/driver" && dep != Module+"/internal/group" {
				broken = append(broken, fmt.Sprintf("%s is linked with %s; it needs the standard library alone", p.Path, dep))
			}
		}
	}
	return broken
}

// FxUnderBoot keeps fx, tests included, in one place: everything else works
// without it.
func FxUnderBoot(pkgs []Package) (broken []string) {
	return confined(pkgs, fx, "boot/...", "fx lives under boot alone")
}

// KoanfUnderConfig keeps koanf, tests included, where files and variables are
// read: everything else asks config.
func KoanfUnderConfig(pkgs []Package) (broken []string) {
	return confined(pkgs, koanf, "config", "koanf lives in config alone")
}

// confined finds imports of a module, or of a part of it, outside of its home.
func confined(pkgs []Package, module, home, why string) (broken []string) {
	for _, p := range pkgs {
		from, _ := local(p.Path)
		if within(from, home) {
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

// Documented wants a package doc everywhere: it is the first thing that a
// reader sees.
func Documented(pkgs []Package) (broken []string) {
	for _, p := range pkgs {
		if p.Doc == "" {
			broken = append(broken, fmt.Sprintf("%s has no package doc", p.Path))
		}
	}
	return broken
}

// Named refuses packages whose name does not say what they are about.
func Named(pkgs []Package) (broken []string) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "manager", "types", "base"}
	for _, p := range pkgs {
		for word := range strings.SplitSeq(p.Path+"/"+p.Name, "/") {
			if slices.Contains(vague, word) {
				broken = append(broken, fmt.Sprintf("%s: %q does not say what is inside", p.Path, word))
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
