// Package programs measures whole programs from their start: mega-lock in a
// shell, and a server that says hello.
package programs

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// hello contains the compared programs. They are not packages of this module,
// which does not need the dependencies of the framework.
//
//go:embed testdata/hello
var hello embed.FS

const (
	netHTTP  = "net/http"
	stripped = "mega, stripped"
	module   = "github.com/megaframework/mega"
)

// program is a compiled hello-world.
type program struct {
	source string
	binary string
}

// HelloWorld builds a program of mega and one of net/http that say hello, starts
// both in turn until they answer, and looks at their binaries.
func HelloWorld(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sizes, programs := measure.Samples{}, map[string]program{}
	for _, v := range []struct{ name, folder, flags string }{
		{measure.Mega, "mega", ""}, {netHTTP, "plain", ""}, {stripped, "mega", "-s -w"},
	} {
		p, err := compile(ctx, dir, v.folder, v.flags)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		info, err := os.Stat(p.binary)
		if err != nil {
			return nil, err
		}
		programs[v.name] = p
		sizes.Add(v.name, float64(info.Size())/1e6)
	}
	share, err := shares(ctx, programs[measure.Mega])
	if err != nil {
		return nil, err
	}
	times, err := startTimes(ctx, l, programs[measure.Mega], programs[netHTTP])
	return []measure.Claim{
		times.Absolute("from exec to the first 200, p50", "ms", netHTTP).AtMost(100),
		sizes.Absolute("binary", "MB", stripped, netHTTP),
		share,
	}, err
}

// compile builds a program of testdata in the framework's module.
func compile(ctx context.Context, dir, folder, flags string) (program, error) {
	text, err := hello.ReadFile("testdata/hello/" + folder + "/main.go")
	if err != nil {
		return program{}, err
	}
	p := program{filepath.Join(dir, folder+".go"), filepath.Join(dir, folder+strings.ReplaceAll(flags, " ", ""))}
	if err := os.WriteFile(p.source, text, 0o600); err != nil {
		return program{}, err
	}
	_, err = goTool(ctx, nil, "build", "-buildvcs=false", "-ldflags="+flags, "-o", p.binary, p.source)
	return p, err
}

// goTool runs the go command in the framework's module, with environ beside the
// environment of this process.
func goTool(ctx context.Context, environ []string, args ...string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find %s (run the bench in its folder): %w", module, err)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = strings.TrimSpace(string(root)), append(os.Environ(), environ...)
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, &messages)
	}
	return string(out), nil
}

// startTimes starts the programs in turn, each until it answers.
func startTimes(ctx context.Context, l *lab.Lab, ours, plain program) (measure.Samples, error) {
	names, binaries := []string{measure.Mega, netHTTP}, []string{ours.binary, plain.binary}
	times := measure.Samples{}
	for range l.Reps(7) {
		took := make([][]time.Duration, len(names))
		for round := range l.Scaled(8) {
			for _, i := range measure.Turn(len(names), round) {
				d, err := untilAnswer(ctx, binaries[i])
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[i] = append(took[i], d)
			}
		}
		for i, name := range names {
			times.Add(name, measure.Micros(measure.Median(took[i]))/1000)
		}
	}
	return times, nil
}

// untilAnswer starts a program, and returns when it has answered with 200.
func untilAnswer(ctx context.Context, binary string) (d time.Duration, err error) {
	addr, err := redistest.FindAddr()
	if err != nil {
		return 0, err
	}
	ops, err := redistest.FindAddr()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(binary)
	cmd.Dir = filepath.Dir(binary) // without a configuration
	cmd.Env = append(os.Environ(), "MEGA_ENV=production", "MEGA_APPS_MAIN_ADDR="+addr, "MEGA_OPS_ADDR="+ops)
	began := time.Now()
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Kill() }() // it has answered, or err is the reason
	for {
		if answered(ctx, addr) {
			return time.Since(began), nil
		}
		select {
		case <-p.Done():
			return 0, fmt.Errorf("the program ended before it answered: %w", p.Wait())
		case <-time.After(100 * time.Microsecond):
		}
		if time.Since(began) > 30*time.Second {
			return 0, errors.New("the program did not answer within 30 s")
		}
	}
}

func answered(ctx context.Context, addr string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"); err != nil {
		return false
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && strings.HasPrefix(status, "HTTP/1.1 200 ")
}

// shares is a claim about whose functions a program consists of: the framework's,
// the functions of its largest dependencies, and of Go's library.
func shares(ctx context.Context, p program) (measure.Claim, error) {
	modules, err := goTool(ctx, nil, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", p.source)
	if err != nil {
		return measure.Claim{}, err
	}
	symbols, err := goTool(ctx, nil, "tool", "nm", "-size", "-sort", "none", p.binary)
	if err != nil {
		return measure.Claim{}, err
	}
	code := byModule(symbols, strings.Fields(modules))
	var all float64
	for _, n := range code {
		all += n
	}
	c := measure.Samples{measure.Mega: {100 * code[module] / all}}.Absolute("share of mega's own packages in its functions", "%")
	delete(code, module)
	var others []measure.Figure
	for name, n := range code {
		if host, path, ok := strings.Cut(name, "/"); ok && strings.Contains(host, ".") {
			name = path
		}
		others = append(others, measure.Figure{Name: name, Value: 100 * n / all})
	}
	slices.SortFunc(others, func(a, b measure.Figure) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(others, func(a, b measure.Figure) int { return int(1e6 * (b.Value - a.Value)) })
	c.Others = largest(others, 4)
	return c, nil
}

// largest keeps the first n figures, and adds up the others.
func largest(figures []measure.Figure, n int) []measure.Figure {
	if len(figures) <= n {
		return figures
	}
	rest := measure.Figure{Name: fmt.Sprintf("%d others", len(figures)-n)}
	for _, f := range figures[n:] {
		rest.Value += f.Value
	}
	return append(figures[:n:n], rest)
}

// goLibrary is all code that belongs to no module.
const goLibrary = "Go's library"

// byModule returns the bytes of the functions of each module, from the output of
// go tool nm -size.
func byModule(symbols string, modules []string) map[string]float64 {
	sizes := map[string]float64{}
	for line := range strings.Lines(symbols) {
		fields := strings.Fields(line) // address, size, type, name
		if len(fields) < 4 || !strings.EqualFold(fields[2], "t") {
			continue
		}
		if n, err := strconv.ParseFloat(fields[1], 64); err == nil {
			sizes[moduleOf(fields[3], modules)] += n
		}
	}
	return sizes
}

// moduleOf returns the module with the longest path that a symbol begins with. In
// symbols the dots of the last element of a path are escaped.
func moduleOf(symbol string, modules []string) string {
	symbol = strings.ReplaceAll(strings.TrimPrefix(symbol, "type:.eq."), "%2e", ".")
	found := ""
	for _, m := range modules {
		rest, ok := strings.CutPrefix(symbol, m)
		if ok && len(m) > len(found) && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ".")) {
			found = m
		}
	}
	if found == "" {
		return goLibrary
	}
	return found
}
