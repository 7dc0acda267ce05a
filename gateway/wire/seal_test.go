package wire

import (
	"strings"
	"testing"
)

func TestSeal(t *testing.T) {
	for _, want := range []Thinking{
		{},
		{Opaque: "a+/=\x00ü", Redacted: true, Origin: Origin{Protocol: "anthropic", Provider: "p", Model: "m", Secret: "k"}},
	} {
		s := SealCall(&want, "call")
		got, call, ok := UnsealCall(s)
		if !ok || *got != want || call != "call" {
			t.Errorf("%+v became %+v, %q, %v", want, got, call, ok)
		}
		if got, ok := Unseal(Seal(&want)); !ok || *got != want {
			t.Errorf("%+v became %+v, %v", want, got, ok)
		}
		if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			t.Errorf("%q has other than letters, digits, - and _", s)
		}
	}
	for _, s := range []string{"", "EqQBCkYIA", "skep1.", "skep1.!!", "skep1.eyJ"} {
		if _, ok := Unseal(s); ok {
			t.Errorf("%q is sealed", s)
		}
	}
}

func TestOpaqueDataFitsWhereItCameFromAlone(t *testing.T) {
	o := Origin{Protocol: "anthropic", Provider: "p", Model: "m", Secret: "k"}
	for to, want := range map[Origin]bool{
		o:                       true,
		{Protocol: "anthropic"}: true,
		{Protocol: "gemini", Provider: "p", Model: "m", Secret: "k"}:        false,
		{Protocol: "anthropic", Provider: "q", Model: "m", Secret: "k"}:     false,
		{Protocol: "anthropic", Provider: "p", Model: "n", Secret: "k"}:     false,
		{Protocol: "anthropic", Provider: "p", Model: "m", Secret: "other"}: false,
		{}: false,
	} {
		if o.Fits(to) != want {
			t.Errorf("to %+v: %v", to, !want)
		}
	}
	if (Origin{}).Fits(Origin{}) {
		t.Error("what is not known at all is sent")
	}
}
