package wiretest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// The functions of this file are the bodies of fuzz targets: each gives any bytes to one side of a codec.

// Request reads a client's request. Its bytes stay as they are, and it is refused with an error of kind Invalid or not at all; what can be passed on
// goes to the model of to, and what can be encoded can be read again. It returns what was encoded, or nil.
func Request(t *testing.T, c wire.Codec, op wire.Op, path string, body []byte, to wire.Target) []byte {
	t.Helper()
	before := bytes.Clone(body)
	peek, err := c.Peek(op, path, body)
	kindIs(t, err, agent.Invalid)
	passed, err := c.Patch(op, path, "", nil, body, to)
	kindIs(t, err, agent.Invalid)
	if err == nil {
		knows := to
		knows.Parsed = peek.Parsed
		if same, err := c.Patch(op, path, "", nil, body, knows); err != nil || !bytes.Equal(same.Body, passed.Body) {
			t.Errorf("with what Peek read, patched to %s, %v; else to %s", same.Body, err, passed.Body)
		}
		if !json.Valid(passed.Body) {
			t.Errorf("patched to what is no JSON: %s", passed.Body)
		}
		if p, err := c.Peek(op, passed.Path, passed.Body); err == nil && p.Model != to.Model {
			t.Errorf("patched to the model %s: %s %s", p.Model, passed.Path, passed.Body)
		}
	}
	r, err := c.Decode(op, path, http.Header{}, body)
	kindIs(t, err, agent.Invalid)
	if !bytes.Equal(body, before) {
		t.Error("the body was changed")
	}
	if err != nil {
		return nil
	}
	made, err := c.Encode(op, r, to)
	kindIs(t, err, agent.Invalid)
	if err != nil {
		return nil
	}
	if !json.Valid(made.Body) {
		t.Fatalf("encoded to what is no JSON: %s", made.Body)
	}
	if _, err := c.Decode(op, made.Path, http.Header{}, made.Body); err != nil {
		t.Errorf("what was encoded cannot be read: %v\n%s", err, made.Body)
	}
	return made.Body
}

// Stream reads a provider's stream of server-sent events: the events keep their rules, and what the encoder makes of them says the same.
func Stream(t *testing.T, c wire.Codec, from wire.Origin, stream []byte) {
	t.Helper()
	m := c.Meter(true)
	m.Write(stream)
	m.State()
	if x, ok := m.(wire.Breaker); ok {
		x.Broken(&wire.Fault{Message: "cut"})
	}
	list := Decode(t, c.Decoder(from), Frames(t, string(stream))...)
	a, fault := Collect(list)
	out := string(Encode(c.Encoder(&wire.Request{StreamUse: true}), list))
	if fault != nil {
		return
	}
	again, fault := Collect(Decode(t, c.Decoder(from), Frames(t, out)...))
	if fault != nil {
		t.Fatalf("%v: %s", fault, out)
	}
	if x, y := said(a), said(again); len(x) != len(y) {
		t.Fatalf("%q became %q in %s", x, y, out)
	}
}

func said(a *wire.Answer) string {
	var s strings.Builder
	for _, p := range a.Parts {
		s.WriteString(p.Text)
		if p.Call != nil {
			s.WriteString(p.Call.ID + p.Call.Name + p.Call.Args)
		}
	}
	return strings.ToValidUTF8(s.String(), "?")
}

// Answer reads a provider's whole answer. It is refused with an error of the kind, or with what the provider said is wrong; what can be encoded can be
// read again.
func Answer(t *testing.T, c wire.Codec, from wire.Origin, body []byte, kind agent.Kind) {
	t.Helper()
	m := c.Meter(false)
	m.Write(body)
	m.State()
	a, err := c.DecodeAnswer(body, from)
	if _, ok := errors.AsType[*wire.Fault](err); ok {
		return
	}
	kindIs(t, err, kind)
	if err != nil {
		return
	}
	out, err := c.EncodeAnswer(a, &wire.Request{})
	kindIs(t, err, kind)
	if err != nil {
		return
	}
	if _, err := c.DecodeAnswer(out, from); err != nil {
		t.Fatalf("%v: %s became %s", err, body, out)
	}
}

// Fault reads an answer that is an error, which clients get as JSON.
func Fault(t *testing.T, c wire.Codec, status int, body []byte) {
	t.Helper()
	if _, _, b := c.EncodeFault(c.DecodeFault(status, nil, body)); !json.Valid(b) {
		t.Errorf("no JSON: %s", b)
	}
}

func kindIs(t *testing.T, err error, kind agent.Kind) {
	t.Helper()
	if err != nil && agent.KindOf(err) != kind {
		t.Errorf("error %v is of kind %s, want %s", err, agent.KindOf(err), kind)
	}
}
