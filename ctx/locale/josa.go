package locale

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Josa returns the particle of pair that follows word: Josa("물", "을/를") is "을".
// The first form of the pair follows a final consonant. Numbers and Latin
// letters count as they are read in Korean. Quotation marks, brackets with
// their content, and other marks after the word are ignored. After an
// unreadable word it returns both: "을(를)".
func Josa(word, pair string) string {
	p, err := parsePair(pair)
	if err != nil {
		return pair
	}
	return p.after(word)
}

// pair is a Korean particle in its two forms.
type pair struct{ closed, open string }

// after returns the form that follows word.
func (p pair) after(word string) string {
	switch endingOf(word) {
	case open:
		return p.open
	case closed:
		return p.closed
	case rieul:
		if strings.HasPrefix(p.closed, "으") { // 으로 alone treats ㄹ like a vowel
			return p.open
		}
		return p.closed
	}
	if before, ok := strings.CutSuffix(p.closed, p.open); ok {
		return "(" + before + ")" + p.open
	}
	return p.closed + "(" + p.open + ")"
}

// ending classifies how a word ends when it is read aloud in Korean.
type ending int

const (
	unread ending = iota // unknown
	open                 // in a vowel
	rieul                // in ㄹ
	closed               // in another consonant
)

// marks are signs that are read aloud.
var marks = map[rune]ending{
	'%': open, '％': open, '℃': open, '℉': open, '°': open, '$': open, '€': open, '£': open, '+': open, '&': open, '@': open,
	'#': closed, '¥': closed, '₩': closed,
}

// maxRead is the number of bytes at the end of a word that are read. A value with
// thousands of brackets would take minutes.
const maxRead = 256

// endingOf reads the end of a word without the parts that are not read.
func endingOf(word string) ending {
	word = word[max(len(word)-maxRead, 0):]
	for word != "" {
		r, size := utf8.DecodeLastRuneInString(word)
		if end, ok := marks[r]; ok {
			return end
		}
		switch {
		case r == ')' || r == '）':
			word = beforeBracket(word, size)
			continue
		case hangul(r):
			return endingOfHangul(r)
		case isDigit(r):
			return endingOfNumber(word)
		case isLatin(r):
			return endingOfLatin(word)
		case unicode.In(r, unicode.Hiragana, unicode.Katakana) || r == 'ー':
			return endingOfKana(r)
		case unicode.IsLetter(r):
			return unread
		}
		word = word[:len(word)-size]
	}
	return unread
}

// beforeBracket removes what stands in brackets at the end of a word, or only
// the closing one if there is nothing else: "나이(연령)" is 나이.
func beforeBracket(word string, size int) string {
	inside := word[:len(word)-size]
	i := strings.LastIndexAny(inside, "(（")
	if i < 0 || strings.TrimSpace(inside[:i]) == "" {
		return inside
	}
	return inside[:i]
}

// hangul reports whether r is a syllable, or a letter of one, composed or not.
func hangul(r rune) bool { return unicode.Is(unicode.Hangul, r) }

func endingOfHangul(r rune) ending {
	switch {
	case r >= '가' && r <= '힣':
		return endingOfFinal((r - '가') % 28)
	case r >= 'ㅏ' && r <= 'ㅣ' || r >= 0x1161 && r <= 0x11a7: // vowels alone, or of a decomposed syllable
		return open
	}
	if r == 'ㄹ' || r == 0x11af { // the names of consonants end like themselves
		return rieul
	}
	return closed
}

// endingOfFinal classifies the final of a syllable by its number in Unicode: 0 is no
// consonant, and 8 is ㄹ.
func endingOfFinal(number rune) ending {
	switch number {
	case 0:
		return open
	case 8:
		return rieul
	}
	return closed
}

// closedIf returns closed for a word whose last consonant is heard, and else open.
func closedIf(heard bool) ending {
	if heard {
		return closed
	}
	return open
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

// digits are how 영, 일, 이, 삼, 사, 오, 육, 칠, 팔 and 구 end.
var digits = [10]ending{closed, rieul, open, closed, open, open, closed, rieul, rieul, open}

// endingOfNumber reads the number at the end of a word. Its zeros are 십, 백, 천,
// 만, 억, 조 or 경, of which only 조 ends in a vowel; after a decimal point they are
// 영.
func endingOfNumber(word string) ending {
	if last := word[len(word)-1]; last != '0' {
		return digits[last-'0']
	}
	number := word[len(strings.TrimRightFunc(word, func(r rune) bool { return isDigit(r) || r == ',' })):]
	if strings.HasSuffix(word[:len(word)-len(number)], ".") {
		return closed
	}
	number = strings.ReplaceAll(number, ",", "")
	significant := strings.TrimRight(number, "0")
	zeros := len(number) - len(significant)
	if strings.Trim(significant, "0") != "" && zeros >= 12 && zeros < 16 {
		return open
	}
	return closed
}

func endingOfKana(r rune) ending {
	switch r {
	case 'ん', 'ン', 'っ', 'ッ':
		return closed
	}
	return open
}

func isLatin(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// endingOfLatin reads the Latin letters at the end of a word: capitals or a
// single letter by their names, other letters as a word.
func endingOfLatin(word string) ending {
	letters := word[len(strings.TrimRightFunc(word, isLatin)):]
	if spelled(letters) {
		return endingOfLetter(letters[len(letters)-1])
	}
	return endingOfForeign(strings.ToLower(letters))
}

// spelled reports whether letters are read one by one. More than four capitals
// with a vowel among them are a word in capitals.
func spelled(letters string) bool {
	if len(letters) == 1 {
		return true
	}
	return letters == strings.ToUpper(letters) && (len(letters) <= 4 || !strings.ContainsAny(letters, "AEIOU"))
}

// endingOfLetter: 엘 and 알 end in ㄹ, 엠 and 엔 in another consonant.
func endingOfLetter(c byte) ending {
	switch c | 0x20 {
	case 'l', 'r':
		return rieul
	case 'm', 'n':
		return closed
	}
	return open
}

// endingOfForeign reads a word as Korean would transcribe it. It uses the
// spelling alone, so it is wrong for words with an irregular pronunciation.
func endingOfForeign(word string) ending {
	stem := word
	if s, ok := strings.CutSuffix(word, "e"); ok && strings.HasSuffix(s, "l") || ok && strings.HasSuffix(s, "m") || ok && strings.HasSuffix(s, "n") {
		stem = s // silent: table, time, phone
	}
	switch last := stem[len(stem)-1]; last {
	case 'l':
		return rieul
	case 'm', 'n':
		return closed
	case 'g':
		return closedIf(strings.HasSuffix(stem, "ng"))
	case 'b', 'c', 'k', 'p', 't':
		return closedIf(stopped(stem))
	}
	return open
}

// stopped reports whether the last consonant closes its syllable: it follows
// one short vowel, as in shop or net, or is a ck.
func stopped(stem string) bool {
	n := len(stem)
	if strings.HasSuffix(stem, "ck") || strings.HasSuffix(stem, "ook") || strings.HasSuffix(stem, "pp") {
		return true
	}
	return n >= 2 && isVowel(stem[n-2]) && (n == 2 || !isVowel(stem[n-3]))
}

func isVowel(c byte) bool { return strings.IndexByte("aeiou", c) >= 0 }
