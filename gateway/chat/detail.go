package chat

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/tidwall/gjson"
)

// Thoughts have no field of their own in this protocol. Their text is in reasoning_content, as most hosts have it, and opaque data in the list
// reasoning_details, which clients that know it send back unchanged. What the gateway puts there is sealed (wire.Seal), one entry a thought, with its
// text, its place among the parts, and the id of the call on which it sits. What a provider puts there is one Thinking: the list as it is.
type detail struct {
	Type      string `json:"type"` // reasoning.text with text, else reasoning.encrypted
	ID        string `json:"id,omitempty"`
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	Format    string `json:"format,omitempty"`
	Index     int    `json:"index"`
}

// sealedDetail makes the entry of a thought, or of a call with id call.
func sealedDetail(text string, t *wire.Thinking, index int, call string) json.RawMessage {
	d := detail{Type: "reasoning.encrypted", ID: call, Format: "skep", Index: index}
	if text != "" {
		d.Type, d.Text, d.Signature = "reasoning.text", text, wire.Seal(t)
	} else {
		d.Data = wire.Seal(t)
	}
	b, _ := json.Marshal(d)
	return b
}

// think puts the thoughts of a message among its parts. from is the provider that says it; nil for a message of a client's, which may have sealed entries.
func think(parts []wire.Part, t turn, from *wire.Origin) []wire.Part {
	text := t.Thought
	if text == "" {
		text = t.Thought2
	}
	var foreign []json.RawMessage
	var ours []placed
	signs := map[string]*wire.Thinking{} // of calls
	var head []wire.Part                 // before all else
	for _, raw := range t.Details {
		var d detail
		if json.Unmarshal(raw, &d) != nil {
			continue
		}
		s := d.Signature
		if s == "" {
			s = d.Data
		}
		o, ok := wire.Unseal(s)
		if !ok || from != nil {
			foreign = append(foreign, raw)
			continue
		}
		if d.ID != "" {
			signs[d.ID] = o
			continue
		}
		ours = append(ours, placed{d.Index, wire.Part{Kind: wire.ThoughtPart, Text: d.Text, Thought: o}})
	}
	for i := range parts {
		if c := parts[i].Call; c != nil && signs[c.ID] != nil {
			parts[i].Thought = signs[c.ID]
		}
	}
	if opaque(foreign) {
		o := wire.Origin{Protocol: agent.ChatProtocol.String()}
		if from != nil {
			o = *from
		}
		if text == "" {
			text = detailText(foreign)
		}
		head = append(head, wire.Part{Kind: wire.ThoughtPart, Text: text, Thought: &wire.Thinking{Opaque: string(join(foreign)), Origin: o}})
	} else if text != "" && len(ours) == 0 && len(signs) == 0 {
		head = append(head, wire.Part{Kind: wire.ThoughtPart, Text: text})
	}
	return append(head, merged(parts, ours)...)
}

// placed is a thought and its place among all parts.
type placed struct {
	at   int
	part wire.Part
}

// merged puts thoughts among the other parts, each in its place as far as there is one.
func merged(parts []wire.Part, thoughts []placed) []wire.Part {
	slices.SortStableFunc(thoughts, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	all := make([]wire.Part, 0, len(parts)+len(thoughts))
	for _, x := range thoughts {
		n := min(max(x.at-len(all), 0), len(parts))
		all = append(append(all, parts[:n]...), x.part)
		parts = parts[n:]
	}
	return append(all, parts...)
}

// join makes a list of JSON values, each byte for byte.
func join(list []json.RawMessage) []byte {
	b := []byte{'['}
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// detailText joins the text of a provider's list.
func detailText(list []json.RawMessage) string {
	var b strings.Builder
	for _, raw := range list {
		r := gjson.ParseBytes(raw)
		b.WriteString(r.Get("text").String())
		b.WriteString(r.Get("summary").String())
	}
	return b.String()
}

// opaque reports whether a provider's list has data that must go back to it.
func opaque(list []json.RawMessage) bool {
	for _, raw := range list {
		r := gjson.ParseBytes(raw)
		if r.Get("signature").Type == gjson.String || r.Get("data").Type == gjson.String {
			return true
		}
	}
	return false
}
