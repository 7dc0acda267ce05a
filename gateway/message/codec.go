// Package message is the protocol of Anthropic's messages, versions 2023-06-01 and 2026-10-21: requests, answers, streams, counting of tokens, lists of
// models and errors.
package message

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// Codec is the protocol. It is a wire.Counter and a wire.Lister too.
var Codec wire.Codec = codec{}

// Versions of the protocol, as the header anthropic-version names them.
const (
	First  = "2023-06-01"
	Second = "2026-10-21"
)

// MaxMarks bounds how many parts of a prompt may ask to be cached.
const MaxMarks = 4

// DefaultMaxTokens is asked for when a client of another protocol says nothing: this protocol wants a number.
const DefaultMaxTokens = 8192

const (
	askPath   = "/v1/messages"
	countPath = "/v1/messages/count_tokens"
)

// Header fields of the protocol, as package net/http spells them.
const (
	headerVersion = "Anthropic-Version"
	headerBeta    = "Anthropic-Beta"
)

type codec struct{}

var (
	_ wire.Counter = codec{}
	_ wire.Lister  = codec{}
)

func (codec) Protocol() agent.Protocol { return agent.MessageProtocol }

// own is the protocol as origins name it.
var own = agent.MessageProtocol.String()

func (codec) Key(h http.Header, key string) {
	if h.Get(headerVersion) == Second {
		h.Set("Authorization", "Bearer "+key)
		return
	}
	h.Set("X-Api-Key", key)
}

func (codec) Peek(op wire.Op, _ string, body []byte) (wire.Peek, error) {
	if op == wire.List || op == wire.Describe {
		return wire.Peek{}, nil
	}
	o, err := raw.Read(body)
	if err != nil {
		return wire.Peek{}, err
	}
	p := wire.Peek{Parsed: o}
	model := o.Get("model")
	if model.Type != gjson.String || model.Str == "" {
		return p, agent.Errorf(agent.Invalid, "model: name the model to ask")
	}
	p.Model = model.Str
	p.Stream = o.Get("stream").Bool()
	p.MaxTokens = max(o.Get("max_tokens").Int(), 0)
	p.User = o.Get("metadata").Get("user_id").String()
	if t := o.Get("tools"); t.IsArray() && t.Get("#").Int() > 0 {
		p.Tools = true
		p.Text += len(t.Raw)
	}
	weigh(&p, o.Get("system"), 0)
	o.Get("messages").ForEach(func(_, m gjson.Result) bool {
		if m.Get("role").Str == "user" {
			p.Last = "" // unless results are in it
		}
		weigh(&p, m.Get("content"), 0)
		return true
	})
	return p, nil
}

// weigh adds what content has to p.
func weigh(p *wire.Peek, content gjson.Result, depth int) {
	if content.Type == gjson.String {
		p.Text += len(content.Str)
		return
	}
	if !content.IsArray() || depth > 3 {
		return
	}
	content.ForEach(func(_, b gjson.Result) bool {
		switch b.Get("type").Str {
		case "text":
			p.Text += len(b.Get("text").Str)
		case "thinking":
			p.Text += len(b.Get("thinking").Str)
			p.Signed = p.Signed || b.Get("signature").Str != ""
		case "redacted_thinking":
			p.Signed = true
		case "tool_use":
			p.Text += len(b.Get("input").Raw)
		case "tool_result":
			p.Answers(b.Get("tool_use_id").Str)
			weigh(p, b.Get("content"), depth+1)
		case "image":
			p.Media++
		case "document":
			if s := b.Get("source"); s.Get("type").Str == "text" {
				p.Text += len(s.Get("data").Str)
			} else {
				p.Media++
			}
		default:
			p.Text += len(b.Raw)
		}
		return true
	})
}

func (codec) Patch(op wire.Op, at, query string, header http.Header, body []byte, to wire.Target) (wire.Call, error) {
	c := wire.Call{Path: at, Query: dropKey(query), Header: http.Header{}}
	if i := strings.IndexByte(c.Path, '?'); i >= 0 {
		c.Path = c.Path[:i]
	}
	for _, name := range []string{headerVersion, headerBeta} {
		if vs := header[name]; len(vs) > 0 {
			c.Header[name] = slices.Clone(vs)
		}
	}
	if c.Header.Get(headerVersion) == "" {
		c.Header[headerVersion] = []string{First}
	}
	if op == wire.List || op == wire.Describe {
		return c, nil
	}
	c.Header["Content-Type"] = []string{"application/json"}
	o, err := raw.Parsed(to.Parsed, body)
	if err != nil {
		return wire.Call{}, err
	}
	c.Body = body
	if to.Model != "" && o.Get("model").String() != to.Model {
		c.Body = o.Set("model", raw.AppendString(nil, to.Model))
	}
	c.Body = dropForeign(c.Body, to.Origin)
	return c, nil
}

// dropKey removes a key from a query: it is one of ours.
func dropKey(query string) string {
	if !strings.Contains(query, "key=") {
		return query
	}
	var keep []string
	for f := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(f, "="); !strings.EqualFold(name, "key") {
			keep = append(keep, f)
		}
	}
	return strings.Join(keep, "&")
}

// dropForeign takes thoughts out of the messages that a provider of another protocol signed: this one would refuse them. All other bytes stay.
func dropForeign(body []byte, to wire.Origin) []byte {
	if !mayBeForeign(body) {
		return body
	}
	type span struct{ at, n int }
	var cut []span
	messages := gjson.GetBytes(body, "messages")
	messages.ForEach(func(_, m gjson.Result) bool {
		content := m.Get("content")
		if m.Get("role").Str != "assistant" || !content.IsArray() || content.Index == 0 {
			return true
		}
		blocks := content.Array()
		drop := make([]bool, len(blocks))
		last := -1 // of the blocks that stay
		for i, b := range blocks {
			drop[i] = b.Get("type").Str == "thinking" && foreign(b.Get("signature").Str, to)
			if !drop[i] {
				last = i
			}
		}
		if last < 0 { // a message must say something; the provider tells what is wrong with it
			return true
		}
		for i, b := range blocks {
			if !drop[i] {
				continue
			}
			at, end := b.Index, b.Index+len(b.Raw)
			if i < last {
				end = blocks[i+1].Index
			} else { // nothing that stays follows: the comma before it goes
				prev := blocks[i-1]
				at = prev.Index + len(prev.Raw)
			}
			cut = append(cut, span{at, end - at})
		}
		return true
	})
	out := make([]byte, 0, len(body))
	done := 0
	for _, s := range cut {
		if s.at < done || s.at+s.n > len(body) {
			return body
		}
		out = append(out, body[done:s.at]...)
		done = s.at + s.n
	}
	return append(out, body[done:]...)
}

func mayBeForeign(body []byte) bool {
	for _, s := range []string{`"skep1.`, `"signature":""`, `"signature": ""`} {
		if bytes.Contains(body, []byte(s)) {
			return true
		}
	}
	return false
}

// foreign reports whether a signature is none of this protocol's: one of another provider's, or none at all.
func foreign(signature string, to wire.Origin) bool {
	if signature == "" {
		return true
	}
	t, ok := wire.Unseal(signature)
	return ok && !t.Origin.Fits(to)
}
