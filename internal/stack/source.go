package stack

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
)

// Line is a line of a source file.
type Line struct {
	Number int
	Text   string
	Here   bool // the line that was asked for
}

// around is the number of lines before and after the line that is asked for.
const around = 5

// maxSource bounds the size of a file that is read.
const maxSource = 1 << 20

// Source returns the lines of a Go file around a line, or nil if the file cannot
// be read, as where the program was built on another machine.
func Source(file string, line int) []Line {
	if filepath.Ext(file) != ".go" || !filepath.IsAbs(file) {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSource {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return Excerpt(string(text), line)
}

// Excerpt returns the lines of a text around a line, with four spaces for each
// tab, or nil without that line.
func Excerpt(text string, line int) (lines []Line) {
	all := strings.Split(strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\t", "    "), "\n")
	if line < 1 || line > len(all) {
		return nil
	}
	for n := max(1, line-around); n <= min(len(all), line+around); n++ {
		lines = append(lines, Line{n, strings.TrimSuffix(all[n-1], "\r"), n == line})
	}
	return lines
}

// maxWalk bounds the search for a method, in functions and in bytes of code.
const maxWalk = 4096

// Declared returns the place of a function. A method value is a function that
// the compiler has generated: it calls its method or contains it. The method is in
// the same package, and the functions of a package are consecutive in a program.
func Declared(fn any) (Frame, bool) {
	code := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if code == nil {
		return Frame{}, false
	}
	name, isMethod := strings.CutSuffix(code.Name(), "-fm")
	file, line := code.FileLine(code.Entry())
	if isMethod {
		file, line = method(code, name)
	}
	return Frame{Func: short(name), File: file, Line: line, Own: isOwn(name, file)}, filepath.IsAbs(file)
}

func method(value *runtime.Func, name string) (file string, line int) {
	at := value
	for range maxWalk {
		if at = runtime.FuncForPC(at.Entry() - 1); at == nil {
			break
		}
		if at.Name() == name {
			return at.FileLine(at.Entry())
		}
	}
	for pc := value.Entry() + 1; pc < value.Entry()+maxWalk; pc++ {
		if f, _ := runtime.CallersFrames([]uintptr{pc}).Next(); f.Function == name && f.Entry == value.Entry() {
			return f.File, f.Line
		}
	}
	return "", 0
}

// FirstOwn returns the first frame of the calls, as from runtime.Callers, that
// is the program's own.
func FirstOwn(pcs []uintptr) (Frame, bool) {
	if len(pcs) == 0 || pcs[0] == 0 {
		return Frame{}, false
	}
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.File != "" && isOwn(f.Function, f.File) {
			return Frame{Func: short(f.Function), File: f.File, Line: f.Line, Own: true}, true
		}
		if !more {
			return Frame{}, false
		}
	}
}
