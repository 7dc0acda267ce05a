package script

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Script answers requests to a provider, as the transport below them. It is safe for concurrent use.
type Script struct {
	turns  []Turn
	slots  []slot
	codecs map[agent.Protocol]wire.Codec

	mu   sync.Mutex
	seen map[seenKey]int // how often a turn with Times answered a conversation
}

type seenKey struct {
	turn int
	hash string
}

// maxSeen bounds what is remembered of turns that answer so many times alone.
const maxSeen = 100_000

// New reads a script. It answers in the protocols of codecs.
func New(text []byte, codecs []wire.Codec) (*Script, error) {
	turns, err := parse(text)
	if err != nil {
		return nil, err
	}
	s := &Script{turns: turns, slots: slots(turns), codecs: map[agent.Protocol]wire.Codec{}, seen: map[seenKey]int{}}
	for _, c := range codecs {
		s.codecs[c.Protocol()] = c
	}
	return s, nil
}

// Check returns an Invalid error that says what is wrong with a script, and where.
func Check(text []byte) error {
	_, err := parse(text)
	return err
}

// asks says what a path of a provider asks for.
func asks(path string) (agent.Protocol, wire.Op) {
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return agent.ChatProtocol, wire.Generate
	case strings.HasSuffix(path, "/responses"):
		return agent.ResponseProtocol, wire.Generate
	case strings.HasSuffix(path, "/messages/count_tokens"):
		return agent.MessageProtocol, wire.Count
	case strings.HasSuffix(path, "/messages"):
		return agent.MessageProtocol, wire.Generate
	case strings.HasSuffix(path, "/embeddings"):
		return agent.EmbedProtocol, wire.Embed
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		return agent.GeminiProtocol, wire.Generate
	case strings.HasSuffix(path, ":countTokens"):
		return agent.GeminiProtocol, wire.Count
	}
	return agent.NoProtocol, wire.NoOp
}

// RoundTrip is http.RoundTripper's.
func (s *Script) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(io.LimitReader(r.Body, 64<<20))
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	protocol, op := asks(r.URL.Path)
	codec := s.codecs[protocol]
	if codec == nil {
		return whole(r, http.StatusNotFound, nil, fmt.Appendf(nil, `{"error":{"message":%q}}`, "a script answers nothing at "+r.URL.Path)), nil
	}
	if op == wire.Embed {
		return embed(r, body)
	}
	place := r.URL.Path
	if r.URL.RawQuery != "" {
		place += "?" + r.URL.RawQuery // it says in some protocols what form a stream has
	}
	peek, err := codec.Peek(op, place, body)
	if err != nil {
		return refuse(r, codec, err), nil
	}
	if op == wire.Count {
		return count(r, protocol, peek), nil
	}
	asked, err := codec.Decode(op, place, r.Header, body)
	if err != nil {
		return refuse(r, codec, err), nil
	}
	if asked.Model == "" {
		asked.Model = peek.Model
	}
	c := conversationOf(asked)
	i, err := s.choose(c)
	if err != nil {
		return refuse(r, codec, err), nil
	}
	p := play{s: s, r: r, codec: codec, asked: asked, stream: peek.Stream, c: c, input: peek.Text}
	return p.turn(&s.turns[i])
}

func refuse(r *http.Request, codec wire.Codec, err error) *http.Response {
	status, header, body := codec.EncodeFault(&wire.Fault{
		Class: agent.InvalidRequest, Status: http.StatusBadRequest, Type: "invalid_request_error", Message: "scripted model: " + agent.AsError(err).Msg,
	})
	return whole(r, status, header, body)
}

// conversation is where in a conversation a request stands.
type conversation struct {
	model string
	nth   int // the answer that is asked for, from 1
	last  string
	tool  string // that last is the result of
	hash  string
}

func conversationOf(r *wire.Request) conversation {
	c := conversation{model: r.Model, nth: 1}
	h := sha256.New()
	names := map[string]string{}
	assistant := false
	for _, m := range r.Messages {
		if m.Role == wire.Assistant && !assistant {
			c.nth++
		}
		assistant = m.Role == wire.Assistant
		fmt.Fprintf(h, "%d;", m.Role)
		for _, p := range m.Parts {
			fmt.Fprintf(h, "%d %q;", p.Kind, p.Text)
			switch {
			case p.Call != nil:
				names[p.Call.ID] = p.Call.Name
				fmt.Fprintf(h, "%q %q;", p.Call.Name, p.Call.Args)
			case p.Result != nil:
				c.last, c.tool = text(p.Result.Parts), p.Result.Name
				if c.tool == "" {
					c.tool = names[p.Result.CallID]
				}
				fmt.Fprintf(h, "%q;", c.last)
			case p.Kind == wire.TextPart && m.Role == wire.User:
				c.last, c.tool = p.Text, ""
			}
		}
	}
	c.hash = hex.EncodeToString(h.Sum(nil)[:12])
	return c
}

func text(parts []wire.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

func (m *Match) fits(c conversation) bool {
	model := m.Model == "" || m.Model == c.model
	if head, ok := strings.CutSuffix(m.Model, "*"); ok {
		model = strings.HasPrefix(c.model, head)
	}
	return model && (m.Contains == "" || strings.Contains(c.last, m.Contains)) && (m.Tool == "" || m.Tool == c.tool) && (m.Nth == 0 || m.Nth == c.nth) &&
		(m.Request == "" || m.Request == c.hash)
}

// choose returns the index of the turn that answers: the first whose match fits, else the one at the place of the conversation.
func (s *Script) choose(c conversation) (int, error) {
	for i := range s.turns {
		t := &s.turns[i]
		if t.Match != nil && t.Match.fits(c) && s.again(i, t.Times, c) {
			return i, nil
		}
	}
	if c.nth <= len(s.slots) {
		sl := s.slots[c.nth-1]
		for n, i := range sl.faults {
			times := max(s.turns[i].Times, 1)
			if sl.turn < 0 && n == len(sl.faults)-1 && s.turns[i].Times == 0 {
				times = 0 // nothing follows: it answers always
			}
			if s.again(i, times, c) {
				return i, nil
			}
		}
		if sl.turn >= 0 && s.again(sl.turn, s.turns[sl.turn].Times, c) {
			return sl.turn, nil
		}
	}
	last := c.last
	if len(last) > 200 {
		last = strings.ToValidUTF8(last[:200], "") + "..."
	}
	what := "the last message is"
	if c.tool != "" {
		what = "the last result, of the tool " + c.tool + ", is"
	}
	return 0, agent.Errorf(agent.Invalid, "the script has no turn for answer %d of this conversation (it has %d turns in order, and no match fits); the model is %q, and %s %q",
		c.nth, len(s.slots), c.model, what, last)
}

// again counts a use of a turn that answers so many times, and reports whether it does.
func (s *Script) again(i, times int, c conversation) bool {
	if times == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := seenKey{i, c.hash}
	if s.seen[k] >= times {
		return false
	}
	if len(s.seen) >= maxSeen {
		clear(s.seen)
	}
	s.seen[k]++
	return true
}

// count answers how many tokens a request has: one for four bytes.
func count(r *http.Request, p agent.Protocol, peek wire.Peek) *http.Response {
	name := "input_tokens"
	if p == agent.GeminiProtocol {
		name = "totalTokens"
	}
	return whole(r, http.StatusOK, nil, fmt.Appendf(nil, `{"%s":%d}`, name, tokens(peek.Text)))
}

func tokens(bytes int) int64 { return int64(bytes+3) / 4 }

// embed answers with vectors that are made from the texts alone.
func embed(r *http.Request, body []byte) (*http.Response, error) {
	var in struct {
		Model string          `json:"model"`
		Input json.RawMessage `json:"input"`
	}
	var texts []json.RawMessage
	if json.Unmarshal(body, &in) != nil || json.Unmarshal(in.Input, &texts) != nil {
		texts = []json.RawMessage{in.Input}
	}
	type vector struct {
		Object string    `json:"object"`
		Index  int       `json:"index"`
		Vector []float64 `json:"embedding"`
	}
	list := []vector{}
	for i, t := range texts {
		h := sha256.Sum256(t)
		v := vector{Object: "embedding", Index: i}
		for _, b := range h[:8] {
			v.Vector = append(v.Vector, (float64(b)-127.5)/360.7)
		}
		list = append(list, v)
	}
	n := tokens(len(in.Input))
	out, err := json.Marshal(map[string]any{
		"object": "list", "data": list, "model": in.Model, "usage": map[string]int64{"prompt_tokens": n, "total_tokens": n},
	})
	return whole(r, http.StatusOK, nil, out), err
}

// whole is a response that is not streamed.
func whole(r *http.Request, status int, header http.Header, body []byte) *http.Response {
	h := header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(string(body))), Request: r,
	}
}
