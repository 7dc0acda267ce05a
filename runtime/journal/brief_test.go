package journal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
)

func TestBrief(t *testing.T) {
	open := func(head string) []byte { return abi.AppendHTTPFrame(nil, []byte(head), []byte("body")) }
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{abi.CallHTTPOpen, open(`{"method":"POST","url":"https://ann:pw@pay.example/v1/c?key=secret&debug&a=1#x"}`), "POST https://pay.example/v1/c?key=&debug&a="},
		{abi.CallHTTPOpen, open(`{"method":"GET","url":"https://pay.example/@a"}`), "GET https://pay.example/@a"},
		{abi.CallHTTP, []byte(`{"method":"PUT","url":"http://x/"}`), "PUT http://x/"},
		{abi.CallHTTP, []byte(`{"url": "http://x/?secret`), "an unknown request"},
		{abi.CallHTTPRead, []byte{7, 0, 0, 0}, "exchange 7"},
		{abi.CallSleep, []byte(`{"for":90000}`), "1m30s"},
		{abi.CallSleep, []byte(`{"until":1000}`), "until 1970-01-01T00:00:01Z"},
		{abi.CallWait, []byte(`{"type":"approval","timeout":1000}`), "event approval, up to 1s"},
		{abi.CallSleep, []byte(`{"for":172800000}`), "48h"},
		{abi.CallSleep, []byte(`{"for":3660000}`), "1h1m"},
		{abi.CallWait, []byte(`{"type":"approval"}`), "event approval"},
		{abi.CallResult, []byte(`{"run":"01J"}`), "run 01J"},
		{abi.CallStart, []byte(`{"function":"kid","input":"MQ=="}`), "kid 1"},
		{abi.CallAgent, []byte(`{"agent":"bank","function":"pay","input":"NQ=="}`), "bank.pay 5"},
		{abi.CallAgent, []byte(`{"agent":"bank","key":"ann","function":"pay"}`), "bank/ann.pay"},
		{abi.CallStorageGet, []byte(`{"keys":["a","b"]}`), "a, b"},
		{abi.CallStorageSet, []byte(`{"key":"a","json":{"x":1}}`), `a = {"x":1}`},
		{abi.CallStorageSet, []byte(`{"key":"a","text":"x y"}`), `a = "x y"`},
		{abi.CallStorageDelete, []byte(`{"key":"a"}`), "a"},
		{abi.CallStorageBatch, []byte(`{"edits":[{"do":"set","key":"a","json":1},{"do":"delete","key":"b"}]}`), "set a = 1, delete b"},
		{abi.CallStorageSQL, []byte(`{"query":"select *\n  from t"}`), "select * from t"},
		{abi.CallStorageList, []byte(`{ "prefix": "a" }`), `{"prefix":"a"}`},
		{"unknown", []byte("\xff\xfex"), "\uFFFDx"},
	} {
		if got := Brief(tt.name, tt.in); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
	for _, in := range []string{
		`{"key":"` + strings.Repeat("é", 1000) + `"}`, `{"key":"k","json":"` + strings.Repeat("x", 100_000) + `"}`, strings.Repeat("\xffa", 200),
	} {
		got := Brief(abi.CallStorageSet, []byte(in))
		if len(got) > MaxBrief || len(got) < MaxBrief-4 || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
			t.Errorf("%.20q: %d bytes, %q", in, len(got), got)
		}
	}
}

func FuzzBrief(f *testing.F) {
	f.Add(uint8(0), []byte(`{"method":"POST","url":"https://x/?a=1"}`))
	f.Add(uint8(3), []byte(`{"key":"a","json":1}`))
	names := make([]string, 0, len(classOf)+3)
	names = append(names, abi.CallHTTP, abi.CallHTTPOpen, abi.CallAgent, abi.CallStorageSet)
	for name := range classOf {
		names = append(names, name)
	}
	f.Fuzz(func(t *testing.T, n uint8, in []byte) {
		for _, name := range []string{names[int(n)%len(names)], abi.CallHTTPOpen} {
			if got := Brief(name, in); len(got) > MaxBrief || !utf8.ValidString(got) {
				t.Errorf("%s %q: %d bytes, %q", name, in, len(got), got)
			}
		}
	})
}
