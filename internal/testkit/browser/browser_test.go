package browser_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser starts Chromium, which lives as long as the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, // a container lacks the name spaces that it needs
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MEGA_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no Chromium; make e2e installs it")
	return ""
}

// screen is what a page is looked at on.
type screen struct {
	width, height int64
	scheme        string
}

func (s screen) String() string { return fmt.Sprintf("%d-%s", s.width, s.scheme) }

var (
	wide    = screen{1280, 900, "light"}
	narrow  = screen{390, 844, "dark"}
	screens = []screen{wide, narrow, {1280, 900, "dark"}, {320, 568, "light"}} // 320: a zoom of 400 %
)

// tab is a tab of the browser.
type tab struct {
	t        *testing.T
	ctx      context.Context
	problems *problems
}

// problems is what the pages of a tab complained about.
type problems struct {
	mu  sync.Mutex
	all []string
}

// open opens a tab that ends with the test.
func open(t *testing.T, browser context.Context, s screen) *tab {
	t.Helper()
	ctx, leave := chromedp.NewContext(browser)
	t.Cleanup(leave)
	b := &tab{t, ctx, &problems{}}
	b.do("open a tab")
	messages := chromedp.Console(ctx)
	go b.problems.read(messages) // until the tab is closed
	b.do("set the screen", chromedp.EmulateViewport(s.width, s.height))
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: s.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}); err != nil {
		t.Fatal(err)
	}
	return b
}

// in is the tab within a part of its test.
func (b *tab) in(t *testing.T) *tab {
	t.Helper()
	return &tab{t, b.ctx, b.problems}
}

func (p *problems) read(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return
		}
		switch m.Type {
		case chromedp.ConsoleException, chromedp.ConsoleError, chromedp.ConsoleWarning:
			p.mu.Lock()
			p.all = append(p.all, fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
			p.mu.Unlock()
		}
	}
}

// take returns the problems, and forgets them.
func (p *problems) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

// do does something in the tab, and ends the test if it fails.
func (b *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, bound)
	defer end()
	if len(steps) == 0 {
		ctx = b.ctx // the tab lives as long as the context that opened it
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// get returns the result of an action, and ends the test if it fails.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, bound)
	defer end()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// visit opens a page.
func (b *tab) visit(url string) {
	b.t.Helper()
	b.do("visit "+url, chromedp.Navigate(url))
}

// awaits waits until an expression of JavaScript is true.
func (b *tab) awaits(expression string) {
	b.t.Helper()
	b.do("wait for "+expression, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(bound)))
}

// picture leaves a picture of the page in bin/pages.
func (b *tab) picture(name string) {
	b.t.Helper()
	file := filepath.Join("..", "..", "..", "bin", "pages", strings.ReplaceAll(name, "/", "_")+".png")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, get(b, chromedp.FullScreenshot(100)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}
