package locale

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// message is one text of a catalogue, parsed.
type message struct{ parts []part }

// part is a piece of text, or a placeholder: a name, a particle, or a name
// with the particle that follows it.
type part struct {
	text, name string
	particle   *pair
}

// parseMessage reads "{name|을/를} {count}개 담았습니다." A particle by itself, {|을/를},
// agrees with whatever text is before it. A brace of the text itself is
// written \{ or \}.
func parseMessage(text string) (*message, error) {
	m := &message{}
	for text != "" {
		literal, rest, err := cutLiteral(text)
		if err != nil {
			return nil, err
		}
		if literal != "" {
			m.parts = append(m.parts, part{text: literal})
		}
		if rest == "" {
			break
		}
		inside, after, closed := strings.Cut(rest[1:], "}")
		if !closed {
			return nil, fmt.Errorf("%q does not end; write \\{ for a brace", rest)
		}
		p, err := parsePlaceholder(inside)
		if err != nil {
			return nil, err
		}
		m.parts, text = append(m.parts, p), after
	}
	return m, nil
}

// cutLiteral returns the text before the next placeholder, and what begins
// with it.
func cutLiteral(text string) (literal, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && (text[i+1] == '{' || text[i+1] == '}'):
			i++
			b.WriteByte(text[i])
		case strings.HasPrefix(text[i:], "{{"):
			return "", "", errors.New("{{…}} is of Go's templates; a placeholder here is {name}")
		case c == '{':
			return b.String(), text[i:], nil
		case c == '}':
			return "", "", errors.New("a } without its {; write \\} for a brace")
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", nil
}

func parsePlaceholder(inside string) (part, error) {
	name, particle, has := strings.Cut(inside, "|")
	if !isName(name) && (name != "" || !has) {
		return part{}, fmt.Errorf("{%s}: a placeholder is called by letters, digits, dots and _", inside)
	}
	if !has {
		return part{name: name}, nil
	}
	p, err := parsePair(particle)
	if err != nil {
		return part{}, fmt.Errorf("{%s}: %w", inside, err)
	}
	return part{name: name, particle: &p}, nil
}

func isName(name string) bool {
	other := func(r rune) bool { return !isLatin(r) && !isDigit(r) && r != '_' && r != '.' }
	return name != "" && !strings.ContainsFunc(name, other)
}

// particles are those whose form depends on the text before them, without 으로, 과
// and 이 in front of others.
func particles() []pair {
	return []pair{
		{"은", "는"}, {"이", "가"}, {"을", "를"}, {"과", "와"}, {"으로", "로"}, {"아", "야"}, {"이에요", "예요"},
		{"이랑", "랑"}, {"이나", "나"}, {"이라고", "라고"}, {"이라는", "라는"}, {"이라도", "라도"}, {"이라면", "라면"},
		{"이란", "란"}, {"이든", "든"}, {"이며", "며"}, {"이여", "여"},
	}
}

// parsePair reads "을/를": the form after a consonant, and the form after a
// vowel. Unusual particles are accepted unchanged.
func parsePair(text string) (pair, error) {
	before, after, ok := strings.Cut(text, "/")
	if !ok || before == "" || after == "" || strings.ContainsFunc(before+after, func(r rune) bool { return !hangul(r) }) {
		return pair{}, fmt.Errorf("%q is not a particle; write 을/를", text)
	}
	p := pair{before, after}
	if slices.Contains(particles(), pair{p.open, p.closed}) {
		return pair{}, fmt.Errorf("%q is the wrong way round; write %s/%s", text, p.open, p.closed)
	}
	return p, nil
}

// placeholders are the names of the values of the message.
func (m *message) placeholders() (names []string) {
	for _, p := range m.parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// render inserts the values into the message. A placeholder without a value
// stays in the text, and its name is returned.
func (m *message) render(value func(name string) (string, bool)) (text string, missing []string) {
	if len(m.parts) == 1 && m.parts[0].text != "" {
		return m.parts[0].text, nil
	}
	var b strings.Builder
	for _, p := range m.parts {
		b.WriteString(p.text)
		if p.name != "" {
			v, ok := value(p.name)
			if !ok {
				v = "{" + p.name + "}"
				missing = append(missing, p.name)
			}
			b.WriteString(v)
		}
		if p.particle != nil {
			b.WriteString(p.particle.after(b.String()))
		}
	}
	return b.String(), missing
}

// bareParticle finds a particle directly after a placeholder, or after the
// quotation mark or bracket that closes around one: it is right for some values
// and wrong for others.
func (m *message) bareParticle() (written, instead string, found bool) {
	for i, p := range m.parts[:max(len(m.parts)-1, 0)] {
		if p.name == "" || p.particle != nil {
			continue
		}
		behind := strings.TrimLeft(m.parts[i+1].text, "'\"’”」』》〉)]】*_`")
		mark := strings.TrimSuffix(m.parts[i+1].text, behind)
		if form, pair, ok := leadingParticle(behind); ok {
			instead = fmt.Sprintf("{%s|%s/%s}", p.name, pair.closed, pair.open)
			if mark != "" {
				instead = fmt.Sprintf("{%s}%s{|%s/%s}", p.name, mark, pair.closed, pair.open)
			}
			return "{" + p.name + "}" + mark + form, instead, true
		}
	}
	return "", "", false
}

// leadingParticle returns the particle at the start of text, if a word ends
// after it.
func leadingParticle(text string) (form string, of pair, found bool) {
	for _, p := range particles() {
		for _, f := range []string{p.closed, p.open} {
			if rest, ok := strings.CutPrefix(text, f); ok && endsWord(rest) {
				return f, p, true
			}
		}
	}
	return "", pair{}, false
}

// endsWord reports whether a word ends here, also after one more particle, as
// in 으로는 and 과의.
func endsWord(rest string) bool {
	for _, more := range []string{"", "의", "는", "도", "만", "서", "써", "부터", "서는", "부터는"} {
		if after, ok := strings.CutPrefix(rest, more); ok {
			if r, _ := utf8.DecodeRuneInString(after); !hangul(r) {
				return true
			}
		}
	}
	return false
}
