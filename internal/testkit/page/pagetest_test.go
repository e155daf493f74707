package pagetest_test

import (
	"slices"
	"testing"

	pagetest "github.com/megaframework/mega/internal/testkit/page"
)

func TestBlocksAndTheirCommands(t *testing.T) {
	blocks := pagetest.Blocks("# A\n```sh\n$ no\n```\n```console\n$ ls\na\nb\n$ true\n```\ntext\n", "console")
	if len(blocks) != 1 || blocks[0].Language != "console" {
		t.Fatalf("found %q", blocks)
	}
	want := []pagetest.Exchange{{Typed: "ls", Answer: "a\nb\n"}, {Typed: "true"}}
	if got := pagetest.Exchanges(blocks[0].Text); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnswersAreTheSame(t *testing.T) {
	for _, x := range []struct {
		shown, got string
		want       bool
	}{
		{"ready in 4ms\n", "ready in 1.25s\n", true},
		{"KEY  HOLDER\n", "KEY   HOLDER\n\n", true},
		{"a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"a\n…\n", "a\nb\n", true},
		{"…\nb\n", "a\nb\n", true},
		{"a\n…\nd\n", "a\nb\n", false},
		{"a\n", "a\nb\n", false},
		{"b\n", "a\nb\n", false},
		{"a.c\n", "abc\n", false},
		{"stock 9\n", "stock 8\n", false},
		{"", "a\n", false},
	} {
		if got := pagetest.Same(x.shown, x.got); got != x.want {
			t.Errorf("%q and %q: got %v", x.shown, x.got, got)
		}
	}
}
