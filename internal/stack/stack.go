// Package stack makes the stacks of goroutines readable: the frames of the
// program are shown with their places, and the frames of mega and of Go are
// folded.
package stack

import (
	"bufio"
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Frame is a call in a stack.
type Frame struct {
	Func string // with its package, without the path of the package: "shop.(*Store).Take"
	File string
	Line int
	Own  bool // neither of Go nor of mega nor of a library that calls for mega
}

// Parse returns the frames of a stack in the format of debug.Stack, the
// innermost first. The frames that handle a panic are left out.
func Parse(text []byte) (frames []Frame) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	call := ""
	for lines.Scan() {
		line := lines.Text()
		place, isPlace := strings.CutPrefix(line, "\t")
		switch {
		case !isPlace:
			call = line
		case strings.HasPrefix(call, "panic("):
			frames = nil
		case call != "":
			if f, ok := newFrame(call, place); ok {
				frames = append(frames, f)
			}
		}
	}
	return frames
}

// newFrame returns the frame of two lines: "main.f(0x1)" and "/shop/main.go:8
// +0x1d".
func newFrame(call, place string) (Frame, bool) {
	function, started := strings.CutPrefix(call, "created by ")
	if started {
		function, _, _ = strings.Cut(function, " in goroutine ")
	} else if i := strings.LastIndexByte(function, '('); i > 0 {
		function = function[:i]
	}
	place, _, _ = strings.Cut(place, " +0x")
	i := strings.LastIndexByte(place, ':')
	if i < 0 {
		return Frame{}, false
	}
	line, err := strconv.Atoi(place[i+1:])
	file := place[:i]
	return Frame{Func: short(function), File: file, Line: line, Own: isOwn(function, file)}, err == nil
}

// short returns the name of a function without the path of its package.
func short(function string) string {
	generic, rest, _ := strings.Cut(function, "[")
	name := generic[strings.LastIndexByte(generic, '/')+1:]
	if rest != "" {
		name += "[" + rest
	}
	return name
}

const module = "github.com/megaframework/mega"

// callers are the libraries through which mega calls a program.
var callers = []string{"github.com/go-chi/chi/", "go.uber.org/fx", "go.uber.org/dig", "github.com/spf13/cobra"}

func isOwn(function, file string) bool {
	if strings.HasSuffix(file, "_test.go") {
		return true
	}
	if rest, ok := strings.CutPrefix(function, module); ok {
		return strings.HasPrefix(rest, "/sample/")
	}
	calls := func(library string) bool { return strings.HasPrefix(function, library) }
	return !slices.ContainsFunc(callers, calls) && !isStandard(function, file)
}

// isStandard reports whether a function belongs to the standard library: its
// file is in the folder of strings.Cut. In a build with -trimpath that folder
// has no name, and the path of a package decides.
func isStandard(function, file string) bool {
	code := runtime.FuncForPC(reflect.ValueOf(strings.Cut).Pointer())
	known, _ := code.FileLine(code.Entry())
	if root := strings.TrimSuffix(known, "strings/strings.go"); root != "" {
		return strings.HasPrefix(file, root)
	}
	first, _, _ := strings.Cut(function, "/")
	info, ok := debug.ReadBuildInfo()
	switch {
	case strings.HasPrefix(function, "main."), ok && strings.HasPrefix(function, info.Main.Path):
		return false
	case first != function:
		return !strings.Contains(first, ".") // a path with a domain is a module
	}
	return true
}

// Text returns the frames as lines, and one line in place of consecutive frames
// that are not the program's own. If none is its own, all are shown.
func Text(frames []Frame) string {
	var lines []string
	all := !slices.ContainsFunc(frames, func(f Frame) bool { return f.Own })
	for _, part := range Fold(frames) {
		switch {
		case part[0].Own || all:
			for _, f := range part {
				lines = append(lines, fmt.Sprintf("%s  %s:%d", f.Func, f.File, f.Line))
			}
		default:
			lines = append(lines, Folded(len(part)))
		}
	}
	return strings.Join(lines, "\n")
}

// Folded returns the line in place of n frames.
func Folded(n int) string {
	if n == 1 {
		return "… 1 frame of mega and Go"
	}
	return fmt.Sprintf("… %d frames of mega and Go", n)
}

// Fold divides frames into runs of the program's own and of others.
func Fold(frames []Frame) (parts [][]Frame) {
	for i, f := range frames {
		if i == 0 || f.Own != frames[i-1].Own {
			parts = append(parts, nil)
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], f)
	}
	return parts
}
