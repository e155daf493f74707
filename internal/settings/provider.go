package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/knadh/koanf/v2"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
)

// Layer is a source of the program's own, between the files and the
// environment. The rules for a file's keys apply: an unknown key, a value out
// of bounds or a number without its unit is an error. A text is accepted for
// every key, as in a variable, because many providers return only texts.
type Layer struct {
	Name     string // as shown in errors and by Explain
	App      string // the app whose keys it sets, without apps.<name> before them; empty for the whole tree
	Provider config.Provider
	Parser   config.Parser // nil for a Provider that returns a map
}

// minLayerTime is the minimum timeout of a provider, however small
// boot.wait_for is.
const minLayerTime = time.Second

// readLayers reads the layers of the program concurrently, each with the
// timeout bound, until done is closed.
func (sc *schema) readLayers(sources []Layer, bound time.Duration, files *Files, done <-chan struct{}) []*layer {
	bound = max(bound, minLayerTime)
	pending := make([]func() (map[string]any, error), len(sources))
	for i, source := range sources {
		pending[i] = files.layer(i, source, func() func() (map[string]any, error) { return source.begin(bound, done) })
	}
	layers := make([]*layer, len(sources))
	for i, source := range sources {
		layers[i] = sc.readLayer(source, pending[i])
	}
	return layers
}

func (sc *schema) readLayer(source Layer, read func() (map[string]any, error)) *layer {
	l := newLayer()
	w := walk{schema: sc, layer: l, source: Origin{Layer: LayerProvider, Name: source.Name}, texts: true}
	if source.App != "" {
		w.under = []string{"apps", source.App}
	}
	tree, err := read()
	if err != nil {
		l.problems = Problems{{Code: "config.provider", Origin: w.source, Text: mask.Text(err.Error())}}
		return l
	}
	var b builder
	root, faults := b.done(b.tree(tree))
	for _, f := range faults {
		w.problem(f.code, 0, f.text, f.hint)
	}
	w.root(root)
	return l
}

// begin starts the provider and returns a function that waits for its result.
// koanf's providers take no context: a provider that does not return within
// bound, or before over is closed, is abandoned, with its goroutine.
func (s Layer) begin(bound time.Duration, over <-chan struct{}) func() (map[string]any, error) {
	var tree map[string]any
	done := contain("", func() (err error) {
		tree, err = s.load()
		return err
	})
	deadline := time.NewTimer(bound)
	return func() (map[string]any, error) {
		defer deadline.Stop()
		select {
		case err := <-done:
			return tree, err
		case <-over:
			return nil, errors.New("did not answer before the program was stopped")
		case <-deadline.C:
		}
		select { // a layer before this one may have taken all the time
		case err := <-done:
			return tree, err
		default:
			return nil, fmt.Errorf("did not answer within %v", bound)
		}
	}
}

func (s Layer) load() (map[string]any, error) {
	k := koanf.New(".")
	if err := k.Load(s.Provider, s.Parser); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	return k.Raw(), nil
}

// tree builds a node from koanf's result, with keys in byte order, because a
// map has no order.
func (b *builder) tree(value any) node {
	defer b.leave()
	if !b.enter(0) {
		return node{kind: nullKind}
	}
	switch v := value.(type) {
	case map[string]any:
		return b.section(0, b.parts(v))
	case []any:
		return listOf(b, v)
	case []string:
		return listOf(b, v)
	}
	return scalar(value)
}

func listOf[T any](b *builder, items []T) node {
	list := node{kind: listKind}
	for _, item := range items {
		list.items = append(list.items, b.tree(item))
	}
	return list
}

func (b *builder) parts(section map[string]any) []part {
	var parts []part
	for _, key := range slices.Sorted(maps.Keys(section)) {
		parts = append(parts, part{key: key, value: b.tree(section[key])})
	}
	return parts
}

// scalar returns the node of a value without parts.
func scalar(value any) node {
	switch v := value.(type) {
	case nil:
		return node{kind: nullKind}
	case string:
		return node{kind: textKind, text: v}
	case bool:
		return node{kind: boolKind, text: strconv.FormatBool(v)}
	case json.Number:
		return node{kind: numberKind, text: v.String()}
	case float64: // encoding/json decodes every number to it
		return node{kind: numberKind, text: strconv.FormatFloat(v, 'f', -1, 64)}
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32:
		return node{kind: numberKind, text: fmt.Sprint(v)}
	case time.Time:
		return node{kind: dateKind, text: v.Format(time.RFC3339)}
	}
	return node{kind: kind(fmt.Sprintf("a value of type %T", value))}
}

// waitFor returns boot.wait_for from the layers that are read before and after
// the program's own.
func waitFor(layers ...*layer) time.Duration {
	d, _ := reflect.TypeAssert[time.Duration](strongest("boot.wait_for", layers...).parsed)
	return d
}
