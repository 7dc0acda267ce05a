package script

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// play is the telling of one turn.
type play struct {
	s      *Script
	r      *http.Request
	codec  wire.Codec
	asked  *wire.Request
	stream bool
	c      conversation
	input  int // bytes of the prompt
}

func (p *play) turn(t *Turn) (*http.Response, error) {
	switch {
	case t.Raw != nil:
		return p.raw(t)
	case t.Reply == nil:
		return p.fault(t.Fault), nil
	}
	return p.say(p.answer(t.Reply), t.Reply, t)
}

// say tells an answer, in the way that a reply and a turn want.
func (p *play) say(a *wire.Answer, how *Reply, t *Turn) (*http.Response, error) {
	wait := time.Duration(how.Delay) * time.Millisecond
	if !p.stream {
		if err := pause(p.r.Context(), wait); err != nil {
			return nil, err
		}
		if t.Stall != nil {
			return nil, pause(p.r.Context(), -1)
		}
		b, err := p.codec.EncodeAnswer(a, p.asked)
		if err != nil {
			return refuse(p.r, p.codec, err), nil
		}
		res := whole(p.r, http.StatusOK, nil, b)
		if t.Cut != nil {
			res.Body = &playback{ctx: p.r.Context(), steps: []step{{data: b[:len(b)/2]}, {err: io.ErrUnexpectedEOF}}}
		}
		return res, nil
	}
	enc := p.codec.Encoder(p.asked)
	pace := time.Duration(how.Pace) * time.Millisecond
	var steps []step
	for _, e := range split(a.Events(), how.Chunk) {
		if b := enc.Append(nil, e); len(b) > 0 {
			steps = append(steps, step{wait: wait, data: b})
			wait = pace
		}
	}
	upTo := func(n *int) bool {
		if n != nil {
			steps = steps[:min(max(*n, 0), len(steps))]
		}
		return n != nil
	}
	switch {
	case t.Fault != nil && upTo(t.Fault.After):
		steps = append(steps, step{data: p.codec.BrokenFrame(p.wire(t.Fault))})
	case upTo(t.Cut):
		steps = append(steps, step{err: io.ErrUnexpectedEOF})
	case upTo(t.Stall):
		steps = append(steps, step{wait: -1})
	case upTo(t.EOF):
	}
	res := whole(p.r, http.StatusOK, http.Header{"Content-Type": {enc.ContentType()}}, nil)
	res.ContentLength, res.Body = -1, &playback{ctx: p.r.Context(), steps: steps}
	return res, nil
}

// split cuts the texts of events into pieces of so many bytes, at the borders of letters.
func split(list []wire.Event, chunk int) (out []wire.Event) {
	if chunk <= 0 {
		chunk = 24
	}
	for _, e := range list {
		if e.Kind != wire.PartDelta || len(e.Text) <= chunk {
			out = append(out, e)
			continue
		}
		rest := e.Text
		for len(rest) > 0 {
			n := min(chunk, len(rest))
			for n < len(rest) && rest[n]&0xc0 == 0x80 {
				n++
			}
			piece := e
			piece.Text, rest = rest[:n], rest[n:]
			out = append(out, piece)
		}
	}
	return out
}

// answer is what a reply says in this conversation.
func (p *play) answer(r *Reply) *wire.Answer {
	fill := func(text string) string { return strings.ReplaceAll(text, "{{last}}", p.c.last) }
	a := &wire.Answer{ID: "scripted-" + p.c.hash, Model: p.asked.Model, Created: time.Unix(1_700_000_000, 0).UTC(), Stop: wire.StopEnd}
	size := 0
	add := func(part wire.Part) {
		size += len(part.Text)
		a.Parts = append(a.Parts, part)
	}
	if r.Reasoning != "" || r.Signature != "" {
		part := wire.Part{Kind: wire.ThoughtPart, Text: fill(r.Reasoning)}
		if r.Signature != "" {
			part.Thought = &wire.Thinking{Opaque: r.Signature, Origin: wire.Origin{Protocol: p.codec.Protocol().String()}}
		}
		add(part)
	}
	if r.Text != "" {
		add(wire.Part{Kind: wire.TextPart, Text: fill(r.Text)})
	}
	if r.Refusal != "" {
		add(wire.Part{Kind: wire.RefusalPart, Text: fill(r.Refusal)})
		a.Stop = wire.StopFilter
	}
	for i, c := range r.Calls {
		call := &wire.ToolCall{ID: c.ID, Name: c.Name, Args: "{}"}
		if call.ID == "" {
			call.ID = "call_" + p.c.hash + strconv.Itoa(i)
		}
		if len(c.Args) > 0 {
			call.Args = fillJSON(c.Args, p.c.last)
		}
		size += len(call.Name) + len(call.Args)
		a.Parts = append(a.Parts, wire.Part{Kind: wire.CallPart, Call: call})
		a.Stop = wire.StopTool
	}
	if r.Stop != "" {
		a.Stop = stops[r.Stop]
	}
	a.Usage = wire.Usage{Known: true, Tokens: agent.ModelTokens{Input: tokens(p.input), Output: tokens(size), Reasoning: tokens(len(r.Reasoning))}}
	if u := r.Usage; u != nil {
		a.Usage = wire.Usage{Known: !u.Unknown, Tokens: agent.ModelTokens{
			Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning,
		}}
	}
	return a
}

// fillJSON puts last into the strings of a JSON value that name it.
func fillJSON(raw json.RawMessage, last string) string {
	if !strings.Contains(string(raw), "{{last}}") {
		return string(raw)
	}
	quoted, err := json.Marshal(last)
	if err != nil {
		return string(raw)
	}
	return strings.ReplaceAll(string(raw), "{{last}}", string(quoted[1:len(quoted)-1]))
}

// wire is a fault as codecs take it.
func (p *play) wire(f *Fault) *wire.Fault {
	out := &wire.Fault{
		Class: agent.ServerFault, Status: f.Status, Type: f.Type, Code: f.Code, Message: f.Message, After: time.Duration(f.RetryAfter) * time.Second,
	}
	if out.Status == 0 {
		out.Status = http.StatusInternalServerError
	}
	switch out.Status {
	case http.StatusTooManyRequests:
		out.Class = agent.RateLimited
	case http.StatusServiceUnavailable, 529:
		out.Class = agent.Overloaded
	case http.StatusUnauthorized, http.StatusForbidden:
		out.Class = agent.AuthFault
	case http.StatusPaymentRequired:
		out.Class = agent.QuotaExhausted
	default:
		if out.Status < http.StatusInternalServerError {
			out.Class = agent.InvalidRequest
		}
	}
	if out.Message == "" {
		out.Message = "scripted fault " + strconv.Itoa(out.Status)
	}
	return out
}

func (p *play) fault(f *Fault) *http.Response {
	told := p.wire(f)
	status, header, body := p.codec.EncodeFault(told)
	if f.Status != 0 {
		status = f.Status
	}
	res := whole(p.r, status, header, body)
	if f.RetryAfter > 0 {
		res.Header.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	return res
}

func (p *play) raw(t *Turn) (*http.Response, error) {
	raw := t.Raw
	if p.differs(raw) {
		return p.translated(t)
	}
	header := http.Header{}
	for name, v := range raw.Header {
		header.Set(name, v)
	}
	status := raw.Status
	if status == 0 {
		status = http.StatusOK
	}
	res := whole(p.r, status, header, raw.bytes())
	if raw.Frames != nil {
		if header.Get("Content-Type") == "" {
			res.Header.Set("Content-Type", "text/event-stream")
		}
		pb := &playback{ctx: p.r.Context()}
		for _, f := range raw.Frames {
			pb.steps = append(pb.steps, step{data: []byte(f)})
		}
		switch n := len(pb.steps); {
		case t.Cut != nil:
			pb.steps = append(pb.steps[:min(max(*t.Cut, 0), n)], step{err: io.ErrUnexpectedEOF})
		case t.Stall != nil:
			pb.steps = append(pb.steps[:min(max(*t.Stall, 0), n)], step{wait: -1})
		case t.EOF != nil:
			pb.steps = pb.steps[:min(max(*t.EOF, 0), n)]
		}
		res.ContentLength, res.Body = -1, pb
	}
	return res, nil
}

// step is a piece of a body.
type step struct {
	wait time.Duration // before it; below 0 for ever
	data []byte
	err  error
}

// playback is a body that comes in steps.
type playback struct {
	ctx   context.Context
	steps []step
}

func (b *playback) Read(p []byte) (int, error) {
	for len(b.steps) > 0 {
		s := &b.steps[0]
		if s.wait != 0 {
			if err := pause(b.ctx, s.wait); err != nil {
				return 0, err
			}
			s.wait = 0
		}
		if s.err != nil {
			return 0, s.err
		}
		if n := copy(p, s.data); n > 0 {
			s.data = s.data[n:]
			if len(s.data) == 0 {
				b.steps = b.steps[1:]
			}
			return n, nil
		}
		b.steps = b.steps[1:]
	}
	return 0, io.EOF
}

func (b *playback) Close() error { return nil }

// pause waits; for ever when d is below 0.
func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	var late <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-late:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
