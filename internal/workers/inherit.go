package workers

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/drivers/cluster"
)

// The environment variables of a worker.
const (
	prefix        = "MEGA_WORKER_"
	envID         = prefix + "ID"         // the worker's number, from 1 on
	envLine       = prefix + "FD"         // the descriptor of the worker's line
	envGeneration = prefix + "GENERATION" // the generation of the worker
	envListeners  = prefix + "LISTENERS"  // name=descriptor, separated by commas
)

// Without returns an environment without those variables.
func Without(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, prefix) })
}

// Descriptors returns the names of the variables that hold passed descriptors.
func Descriptors() []string { return []string{envLine, envListeners} }

// Variables returns the names of all variables of a worker.
func Variables() []string { return append(Descriptors(), envID, envGeneration) }

// Supervised reports whether the environment is that of a process to which a
// supervisor has passed a line.
func Supervised(environ []string) bool {
	return slices.ContainsFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, envLine+"=") })
}

// Inherited holds the settings and the files of a worker that come from its
// supervisor.
type Inherited struct {
	ID         int
	Generation int
	Line       net.Conn // nil without a supervisor: the variables were set by hand

	listeners map[string]*os.File
}

// Inherit returns the settings and the files that a supervisor has passed to
// this process, or nil without a supervisor. Children of this process do not
// inherit those files. Inherit can be called once.
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
			errs = append(errs, fmt.Errorf("%s=%s is not a number from 1", name, text))
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
	if in.Line, err = cluster.Inherited(fd); err != nil {
		return fmt.Errorf("%s=%d is not a line to a supervisor: %w", envLine, fd, err)
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

// Listen returns the passed listener of that name. It can be called once for
// each name.
func (in *Inherited) Listen(name string) (net.Listener, error) {
	f, ok := in.listeners[name]
	if !ok {
		return nil, fmt.Errorf("no listener %s was passed by the supervisor", name)
	}
	delete(in.listeners, name)
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take over listener %s: %w", name, err)
	}
	return l, nil
}

// Left returns the names of the listeners that Listen has not returned yet.
func (in *Inherited) Left() []string { return slices.Sorted(maps.Keys(in.listeners)) }

// Close closes the listeners that Listen has not returned, and the line.
func (in *Inherited) Close() {
	for _, f := range in.listeners {
		_ = f.Close()
	}
	clear(in.listeners)
	if in.Line != nil {
		_ = in.Line.Close()
	}
}
