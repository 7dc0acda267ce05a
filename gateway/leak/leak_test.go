package leak_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/leak"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

const key = "sk-0123456789-abcdefghij"

func text(s string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", s)
}

func args(call int, s string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":%q}}]}}]}\n\n", call, s)
}

// stream passes frames one by one, and returns what went after each and at the end.
func stream(frames ...string) (went []string) {
	m := chat.Codec.Meter(true)
	f := leak.NewFrames(scrub.New([]byte(key)), m, func() wire.Meter { return chat.Codec.Meter(true) }, true)
	for _, b := range frames {
		m.Write([]byte(b))
		went = append(went, string(f.Pass([]byte(b), false)))
	}
	return append(went, string(f.Pass(nil, true)))
}

// Words that cannot be the beginning of a key go at once, and byte for byte; those that can, go as soon as they turn out to be none.
func TestOnlyWhatMayBeAKeyIsHeld(t *testing.T) {
	a, b, c, d := text("plain"), text(" words, s"), text("uch as these"), text("k-01 is none")
	for i, want := range []struct{ frames, went []string }{
		{[]string{a, c, ": a comment\n\n", d}, []string{a, c, ": a comment\n\n", d, ""}},
		{[]string{a, b, c}, []string{a, "", b + c, ""}},
		{[]string{b, ": still there\n\n", d}, []string{"", "", b + ": still there\n\n" + d, ""}},
		{[]string{a, b}, []string{a, "", b}},
	} {
		if got := stream(want.frames...); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want.went) {
			t.Errorf("%d: went %q, not %q", i, got, want.went)
		}
	}
}

// A letter at the end of the words with which a model begins a call does not hold the call up, and yet no more than a few bytes of a key go so.
func TestAnotherTextIsNotHeldUp(t *testing.T) {
	words, call := text("Let me look at it, s"), args(0, `{"city":`)
	if got := stream(words, call, args(0, `"Oslo"}`)); got[0] != "" || got[1] != words+call || got[3] != "" {
		t.Errorf("went %q", got)
	}
	got := strings.Join(stream(text(key[:4]), args(0, "{}"), text(key[4:12]), args(1, "{}"), text(key[12:]), text(".")), "")
	if strings.Contains(got, key[4:8]) || !strings.Contains(got, "[secret]") || !strings.Contains(got, key[:4]) {
		t.Errorf("went %q", got)
	}
}

// What is held is bounded: past that it is taken for a key.
func TestWhatIsHeldIsBounded(t *testing.T) {
	frames := []string{text(key[:12])}
	for i := range 5000 {
		frames = append(frames, args(0, strings.Repeat("x", 100)+fmt.Sprint(i)))
	}
	got := stream(append(frames, text(key[12:]))...)
	n := 0
	for n < len(got) && got[n] == "" {
		n++
	}
	if n < 10 || n > 3000 {
		t.Errorf("the first frame went after %d", n)
	}
	if all := strings.Join(got, ""); strings.Contains(all, key[:12]) || !strings.Contains(all, "[secret]") || !strings.Contains(all, "xx4999") {
		t.Errorf("went %.300q", all)
	}
}

// The bytes around a key stay as they are, and a key that a field has whole is taken out, too.
func TestOtherBytesStay(t *testing.T) {
	frames := []string{
		"id: 7\r\nevent: x\r\ndata: { \"unknown\" : \"sk-01\", \"choices\":[{\"index\":0,\"delta\":{\"role\":\"sk-01\",\"content\" : \"sk-01\"},\"x\":1e9}]}\r\n\r\n",
		text("23456789-abcdefghij<&>"), "data: [DONE]\n\n",
	}
	got := strings.Join(stream(frames...), "")
	want := strings.Replace(frames[0], `"content" : "sk-01"`, `"content" : "[secret]"`, 1) + text("<&>") + frames[2]
	if got != want {
		t.Errorf("went\n%q, not\n%q", got, want)
	}
	if got := strings.Join(stream(text("is "+key+" it")), ""); got != text("is [secret] it") {
		t.Errorf("went %q", got)
	}
}

// What may be a key and is none costs nothing that grows with the stream.
func BenchmarkFrames(b *testing.B) {
	m := chat.Codec.Meter(true)
	frame := []byte(text(" a few more"))
	clean := scrub.New([]byte(key))
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("listening %v", on), func(b *testing.B) {
			m = chat.Codec.Meter(true)
			var f *leak.Frames
			if on {
				f = leak.NewFrames(clean, m, func() wire.Meter { return chat.Codec.Meter(true) }, true)
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Write(frame)
				f.Pass(frame, false)
			}
		})
	}
}
