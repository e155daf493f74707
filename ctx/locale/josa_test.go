package locale_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/megaframework/mega/ctx/locale"
)

func TestParticlesSuitTheWordBeforeThem(t *testing.T) {
	// Every pair behind a word in a vowel, in ㄹ, and in another consonant.
	for _, x := range []struct{ pair, vowel, rieul, consonant string }{
		{"은/는", "사과는", "연필은", "책은"},
		{"이/가", "사과가", "연필이", "책이"},
		{"을/를", "사과를", "연필을", "책을"},
		{"과/와", "사과와", "연필과", "책과"},
		{"으로/로", "사과로", "연필로", "책으로"},
		{"아/야", "사과야", "연필아", "책아"},
		{"이에요/예요", "사과예요", "연필이에요", "책이에요"},
		{"이랑/랑", "사과랑", "연필이랑", "책이랑"},
		{"으로는/로는", "사과로는", "연필로는", "책으로는"},
	} {
		for word, want := range map[string]string{"사과": x.vowel, "연필": x.rieul, "책": x.consonant} {
			if got := word + locale.Josa(word, x.pair); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}

func TestWordsAreReadAsInKorean(t *testing.T) {
	// 을 or 를 says vowel or consonant; 로 or 으로 tells ㄹ from the others.
	for _, x := range []struct{ words, want string }{
		// Syllables, letters, and decomposed syllables.
		{"바다 의자 웨", "를 로"}, {"밥 값 닭 여덟 흙 핥", "을 으로"}, {"물 연필 서울", "을 로"},
		{"ㅏ ㅣ", "를 로"}, {"ㄱ ㅎ", "을 으로"}, {"ㄹ", "을 로"},
		{"\u1100\u1161", "를 로"}, {"\u1100\u1161\u11ab", "을 으로"}, {"\u1106\u116e\u11af", "을 로"},
		// Numbers: 영 일 이 삼 사 오 육 칠 팔 구, 십 백 천 만 억 조 경.
		{"2 4 5 9 12 105", "를 로"}, {"1 7 8 11 1,008", "을 로"}, {"0 3 6 13 00", "을 으로"},
		{"10 200 3,000 40000 100,000 1000000 100000000 20000000000", "을 으로"},
		{"1000000000000 10,000,000,000,000 300000000000000", "를 로"}, {"10000000000000000", "을 으로"},
		{"3.5 0.2", "를 로"}, {"2.1 1.8", "을 로"}, {"3.0 1.10 2.000000000000", "을 으로"}, {"010", "을 으로"},
		{"A4 v2 제2", "를 로"}, {"iPhone17", "을 로"}, {"12:30", "을 으로"},
		// Letters by their names.
		{"A B C D E F G H I J K O P Q S T U V W X Y Z", "를 로"}, {"L R l r URL SQL HTML JR", "을 로"}, {"M N m IBM CNN LAN", "을 으로"},
		{"KT LG API PDF HTTPS", "를 로"},
		// Letters and numbers right behind another script, or in curved quotation marks.
		{"서버IP 혈액형AB 제품OK “IP” 제2", "를 로"}, {"모델R 주식회사JR “URL”", "을 로"}, {"회사IBM 제10 제000000000000", "을 으로"},
		// Words as they are taken over.
		{"Docker server Redis coffee data Go view cloud service test project link blog", "를 로"},
		{"Google apple email Excel file table Oracle", "을 로"},
		{"Slack shop net web Git internet music Kim phone time ping Amazon SAMSUNG facebook", "을 으로"},
		// Marks behind the word are passed over, as is what stands in brackets.
		{"'사과' \"사과\" “사과” 《사과》 [사과] 사과! 사과… *사과* 사과™ 사과🍎 사과.", "를 로"},
		{"'책' 「책」 책(사과) 책(새)! (책) 책) (주)책 책（사과）", "을 으로"},
		{"(사과) 나이(연령) 사과(책)(물)", "를 로"},
		{"50% 5℃ $ C++ A&", "를 로"}, {"C# ₩", "을 으로"},
		// Other scripts.
		{"さくら カメラー", "를 로"}, {"ラーメン", "을 으로"},
	} {
		particle, direction, _ := strings.Cut(x.want, " ")
		for word := range strings.FieldsSeq(x.words) {
			got, to := locale.Josa(word, "을/를"), locale.Josa(word, "으로/로")
			if got != particle || to != direction {
				t.Errorf("%s is followed by %s and %s, want %s and %s", word, got, to, particle, direction)
			}
		}
	}
}

func TestBothFormsFollowAnUnreadableWord(t *testing.T) {
	for _, word := range []string{"漢", "Москва", "", "…", "()", "🍎", "café"} {
		for pair, want := range map[string]string{
			"은/는": "은(는)", "이/가": "이(가)", "을/를": "을(를)", "과/와": "과(와)", "으로/로": "(으)로", "아/야": "아(야)",
			"이에요/예요": "이에요(예요)", "이랑/랑": "(이)랑",
		} {
			if got := locale.Josa(word, pair); got != want {
				t.Errorf("behind %q: got %s, want %s", word, got, want)
			}
		}
	}
}

// A value may be the input of a client.
func TestLongWordsAreReadAtTheirEnd(t *testing.T) {
	for word, want := range map[string]string{
		strings.Repeat(")", 1<<20): "을(를)", "(" + strings.Repeat(")", 1<<20): "을(를)", strings.Repeat("책", 1<<20) + "(물)": "을", strings.Repeat("가", 1<<20) + "!": "를",
	} {
		if got := locale.Josa(word, "을/를"); got != want {
			t.Errorf("behind %.10q…: got %s, want %s", word, got, want)
		}
	}
}

func TestTextWithoutAParticleIsUnchanged(t *testing.T) {
	for _, pair := range []string{"", "을", "를/을", "a/b", "/를", "을/"} {
		if got := locale.Josa("책", pair); got != pair {
			t.Errorf("%q became %q", pair, got)
		}
	}
}

func FuzzJosa(f *testing.F) {
	for _, word := range []string{"사과", "책(", "()", "1,000", ".0", "apple", "e", "ck", "\xff", "\u1100"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		switch got := locale.Josa(word, "을/를"); got {
		case "을", "를", "을(를)":
		default:
			t.Errorf("%q is followed by %q (valid: %v)", word, got, utf8.ValidString(word))
		}
	})
}
