package supervisor

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The variables that tell a worker what it is.
const (
	prefix        = "MEGA_WORKER_"
	envID         = prefix + "ID"         // its number, from 1 on
	envLine       = prefix + "FD"         // the descriptor of its line
	envGeneration = prefix + "GENERATION" // that which it was started in
	envListeners  = prefix + "LISTENERS"  // name=descriptor, with commas
)

// without is an environment without those variables.
func without(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, prefix) })
}

// Descriptors are the names of those that say which descriptors were passed.
func Descriptors() []string { return []string{envLine, envListeners} }

// Inherited is what a worker has from its supervisor.
type Inherited struct {
	ID         int
	Generation int
	Line       net.Conn // nil where no supervisor is: the variables were set by hand

	listeners map[string]*os.File
}

// Inherit takes what a supervisor has passed to this process, or returns nil if
// there is none. What is taken is not passed on to children of the process. It
// can be called once.
func Inherit(environ []string) (*Inherited, error) {
	vars := map[string]string{}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, prefix) {
			vars[name] = value
		}
	}
	if len(vars) == 0 {
		return nil, nil
	}
	in := &Inherited{listeners: map[string]*os.File{}}
	var errs []error
	number := func(name string, to *int) {
		text, ok := vars[name]
		n, err := strconv.Atoi(text)
		if ok && (err != nil || n < 1) {
			errs = append(errs, fmt.Errorf("%s=%s is no number from 1 on", name, text))
		}
		*to = n
	}
	number(envID, &in.ID)
	number(envGeneration, &in.Generation)
	var line int
	if number(envLine, &line); line > 0 {
		errs = append(errs, in.takeLine(line))
	}
	errs = append(errs, in.takeListeners(vars[envListeners]))
	return in, errors.Join(errs...)
}

func (in *Inherited) takeLine(fd int) (err error) {
	f, err := take(fd, "line to the supervisor")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if in.Line, err = net.FileConn(f); err != nil {
		return fmt.Errorf("%s=%d is no line to a supervisor: %w", envLine, fd, err)
	}
	return nil
}

func (in *Inherited) takeListeners(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		name, text, _ := strings.Cut(item, "=")
		fd, err := strconv.Atoi(text)
		if err != nil || fd < firstFile {
			return fmt.Errorf("%s: %q is not name=descriptor", envListeners, item)
		}
		f, err := take(fd, name)
		if err != nil {
			return err
		}
		in.listeners[name] = f
	}
	return nil
}

// Listen returns the listener that was passed by that name. It can be called
// once for each.
func (in *Inherited) Listen(name string) (net.Listener, error) {
	f, ok := in.listeners[name]
	if !ok {
		return nil, fmt.Errorf("the supervisor has passed no listener called %s", name)
	}
	delete(in.listeners, name)
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take the listener %s over: %w", name, err)
	}
	return l, nil
}

// Left are the names of the listeners that nobody has taken yet.
func (in *Inherited) Left() []string { return slices.Sorted(maps.Keys(in.listeners)) }

// Close gives back what was not asked for: a listener that nobody takes, and
// the line.
func (in *Inherited) Close() {
	for _, f := range in.listeners {
		_ = f.Close()
	}
	clear(in.listeners)
	if in.Line != nil {
		_ = in.Line.Close()
	}
}
