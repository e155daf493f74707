package notation_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/notation"
)

func TestNumberWithoutItsUnitIsNotASize(t *testing.T) {
	_, err := notation.ParseSize("1500")
	if e, ok := errors.AsType[*notation.Error](err); !ok || !e.NoUnit || e.Hint != "write 1500B or 1500KiB" {
		t.Errorf("got %#v", err)
	}
}

func TestSizeWithAFractionIsExact(t *testing.T) {
	for text, want := range map[string]int64{
		"0.067GB": 67_000_000, "0.135TB": 135_000_000_000, "1.5KiB": 1536, "9007199254740993B": 9007199254740993,
		"9223372036854775807B": math.MaxInt64, "1.50000000000000000000000000000000000000000000000000000000000000000KiB": 1536,
		"0.0001KiB": -1, "8388608TiB": -1, "1e3kB": -1, "1" + strings.Repeat("0", 1000) + "B": -1,
	} {
		got, err := notation.ParseSize(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestPortIsNotAnAddress(t *testing.T) {
	err := notation.CheckAddr("8080")
	if e, ok := errors.AsType[*notation.Error](err); !ok || e.NoUnit || e.Hint != "write 127.0.0.1:8080, or :8080 for every address of the machine" {
		t.Errorf("got %#v", err)
	}
	if hint := notation.AddrHint("example.org", ""); hint != "" {
		t.Errorf("the hint for a host is %q", hint)
	}
}

func TestHostOfAnAddressIsAnIPAddressOrAName(t *testing.T) {
	for _, addr := range []string{
		":80", "127.0.0.1:80", "0.0.0.0:0", "[::]:80", "[::1]:80", "[fe80::1%eth0]:80", "localhost:80", "shop:80", "shop.example.org:80",
		"shop.example.org.:80", "my_service:80", "3com.example:80", "10-0-0-1.pod:80", "0x7f:80",
	} {
		if err := notation.CheckAddr(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{
		"300.0.0.1:80", "127.0.0.01:80", "127.1:80", "1.2.3.4.5:80", "2130706433:80", "[::zz]:80", "[1.2.3]:80", "a b:80", "http//x:80", "shop..example:80", "user@shop:80",
	} {
		if err := notation.CheckAddr(addr); err == nil || !strings.Contains(err.Error(), "is not an IP address or the name of a host") {
			t.Errorf("%s: got %v", addr, err)
		}
	}
	if e, ok := errors.AsType[*notation.Error](notation.CheckAddr("*:80")); !ok || e.Hint != "write :80 for every address of the machine" {
		t.Errorf("got %v", e)
	}
}

func TestAnIPv6AddressInAURLNeedsBrackets(t *testing.T) {
	for url, want := range map[string]string{
		"redis://[::1]:6379/0":            "",
		"redis://[fe80::1%25eth0]":        "",
		"redis-cluster://[::1]:1,[::1]:2": "",
		"redis://::1":                     "redis://***: an IPv6 address needs brackets, as in [::1]:6379",
		"redis://::1:6379/0":              "redis://***: an IPv6 address needs brackets, as in [::1]:6379",
		"nats://a:4222,nats://fe80::1":    "nats://***: an IPv6 address needs brackets, as in [::1]:6379",
		"redis://:hunter2@::1:6379":       `redis://***@::1:6379: "::1:6379" is not a host or host:port; an IPv6 address needs brackets, as in [::1]:6379`,
		"redis://ann:hunter2@fe80::1":     `redis://***@fe80::1: "fe80::1" is not a host or host:port; an IPv6 address needs brackets, as in [::1]:6379`,
		"redis://:hunter2@10.0.0.1:1:2":   `redis://***@10.0.0.1:1:2: "10.0.0.1:1:2" is not a host or host:port; an IPv6 address needs brackets, as in [::1]:6379`,
		"redis://ann:hunter2:x":           "redis://*** is not a host or host:port; an @ and a host follow a password",
	} {
		got := ""
		if err := notation.CheckURL(url); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}
