package guide_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
)

// What 13-coming-from.md shows.

// besideRedislock opens locks that exclude services which still use redislock on
// the same server.
func besideRedislock(ctx context.Context, client *goredis.Client) (*lock.Locker, error) {
	d, err := redis.OpenLock(ctx, redis.Config{Client: client, Key: "%s"})
	if err != nil {
		return nil, err
	}
	return lock.New(d, lock.Config{})
}

func TestLocksOfThePageExcludeRedislock(t *testing.T) {
	client := redisClient(t)
	locks, err := besideRedislock(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	foreign := redislock.New(client)

	held, err := foreign.Obtain(t.Context(), "order:7", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryAcquire(t.Context(), "order:7"); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("beside a holder of redislock: %v", err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = locks.With(t.Context(), "order:7", func(ctx context.Context) error {
		if _, err := foreign.Obtain(ctx, "order:7", time.Minute, nil); !errors.Is(err, redislock.ErrNotObtained) {
			t.Errorf("redislock beside a holder of mega: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func imports(importAll func(context.Context) error) mega.Option {
	return mega.App("main", mega.Command("import", func(ctx *mega.Ctx) error {
		return ctx.Lock.With("import", func(ctx *mega.Ctx) error { return importAll(ctx) }, lock.Wait(0)) // as flock -n
	}))
}

func TestCommandOfThePageHoldsItsLock(t *testing.T) {
	held := false
	p := boot.Process{Name: "shop", Stderr: io.Discard, Command: "import"}
	status := boot.Main(t.Context(), p, imports(func(ctx context.Context) error {
		_, held = lock.LeaseFrom(ctx)
		return nil
	}))
	if status != 0 || !held {
		t.Errorf("exit status %d, held %v", status, held)
	}
}

// The names of mega in the text of a page, such as lock.Wait, exist.
func TestNamesOnThePagesExist(t *testing.T) {
	exported := map[string]map[string]bool{}
	for name, folder := range map[string]string{"mega": "../..", "lock": "../../lock", "limit": "../../limit", "bus": "../../bus", "guard": "../../lock/guard", "megatest": "../../megatest"} {
		exported[name] = names(t, folder)
	}
	qualified := regexp.MustCompile(`\b(mega|lock|limit|bus|guard|megatest)\.([A-Z]\w*)`)
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("the pages: %q, %v", pages, err)
	}
	found := 0
	for _, page := range pages {
		for _, m := range qualified.FindAllStringSubmatch(read(t, page), -1) {
			found++
			if !exported[m[1]][m[2]] {
				t.Errorf("%s: package %s has no %s", page, m[1], m[2])
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d names were found", found)
	}
}

// names returns the exported names of a package, without methods and fields.
func names(t *testing.T, folder string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", folder, files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			for _, name := range declared(d) {
				all[name] = true
			}
		}
	}
	return all
}

func declared(d ast.Decl) (all []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			all = append(all, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				all = append(all, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					all = append(all, name.Name)
				}
			}
		}
	}
	return all
}
