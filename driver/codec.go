package driver

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// Bounds of the short fields of a message and an event.
const (
	maxName  = 128  // bytes of a kind, a name, a type, a turn
	maxShort = 1024 // bytes of a traceparent, a native id, a token, a key
)

// Encode returns m as one message, or an Exhausted error when it is above MaxMessage.
func Encode(m *Message) ([]byte, error) {
	b := marshal(m)
	if len(b) > MaxMessage {
		return nil, agent.Errorf(agent.Exhausted, "a message %s of %d bytes is above the %d that one may have", m.Kind, len(b), MaxMessage)
	}
	return b, nil
}

// Body returns v as the body of a message. v is a struct of this package.
func Body(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	return marshal(v)
}

// marshal is json.Marshal without escapes for HTML, which make of one byte six. Its errors are those of raw JSON that is none, as a backend may hand on:
// what stands in its place is a string.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		b.Reset()
		_ = enc.Encode(map[string]string{"text": "what should stand here is no JSON: " + err.Error()})
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// Decode reads one message, which came from the other end and may be anything. Every error is Invalid.
func Decode(b []byte) (*Message, error) {
	if len(b) > MaxMessage {
		return nil, agent.Errorf(agent.Invalid, "a message of %d bytes is above the %d that one may have", len(b), MaxMessage)
	}
	if !utf8.Valid(b) {
		return nil, agent.Errorf(agent.Invalid, "a message is not UTF-8")
	}
	m := &Message{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, agent.Errorf(agent.Invalid, "a message cannot be read: %s", err)
	}
	if m.Kind == "" || len(m.Kind) > maxName || len(m.Name) > maxName || len(m.Trace) > maxShort || m.Seq < 0 {
		return nil, agent.Errorf(agent.Invalid, "a message has no kind, or a field of it is too long or negative")
	}
	return m, nil
}

// Read reads the body of m into v, which is a struct of this package.
func (m *Message) Read(v any) error {
	if len(m.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Body, v); err != nil {
		return agent.Errorf(agent.Invalid, "the body of a message %s%s cannot be read: %s", m.Kind, quoted(m.Name), err)
	}
	return nil
}

func quoted(name string) string {
	if name == "" {
		return ""
	}
	return " " + name
}

// DecodeEvents reads and checks the body of a message of events: one to MaxBatch of them, numbered from 1, each with a type and within MaxEvent.
func DecodeEvents(m *Message) (*EventsBody, error) {
	b := &EventsBody{}
	if err := m.Read(b); err != nil {
		return nil, err
	}
	if b.First < 1 || len(b.List) == 0 || len(b.List) > MaxBatch || b.First > 1<<62 {
		return nil, agent.Errorf(agent.Invalid, "a batch of %d events from number %d: there must be 1 to %d, numbered from 1", len(b.List), b.First, MaxBatch)
	}
	for i := range b.List {
		if e := &b.List[i]; !e.fits() {
			return nil, agent.Errorf(agent.Invalid, "event %d has no type, or more than %d bytes of data, or another field that is too long",
				b.First+int64(i), MaxEvent)
		}
	}
	return b, nil
}

func (e *Event) fits() bool {
	return e.Type != "" && len(e.Type) <= maxName && len(e.Turn) <= maxShort && len(e.Native) <= maxShort && len(e.Trace) <= maxShort && len(e.Data) <= MaxEvent
}

// DecodeHello reads and checks the body of a hello.
func DecodeHello(m *Message) (*HelloBody, error) {
	h := &HelloBody{}
	if m.Kind != Hello {
		return nil, agent.Errorf(agent.Invalid, "the first message is %q, not %s", m.Kind, Hello)
	}
	if err := m.Read(h); err != nil {
		return nil, err
	}
	if len(h.Token) > maxShort || len(h.Key) > maxShort || len(h.Nonce) > maxShort || len(h.Driver) > maxShort || h.Seq < 0 || len(h.CLIs) > 64 {
		return nil, agent.Errorf(agent.Invalid, "a hello has a field that is too long or negative")
	}
	return h, nil
}
