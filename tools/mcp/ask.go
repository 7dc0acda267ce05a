package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

const (
	maxAsking  = 16       // questions of one server at a time
	maxMessage = 16 << 10 // bytes of a question, and of its schema
)

// refuse is a middleware that refuses what servers may no longer rely on, and what would let them draw on a person's models and files.
func (l *link) refuse(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "sampling/createMessage", "roots/list":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: refusal(method)}
		}
		return next(ctx, method, req)
	}
}

func refusal(method string) string {
	if method == "roots/list" {
		return "Skep shares no folders with servers: give them as arguments of the tool, or of the server's command"
	}
	return "Skep lends no model to servers: they are to call their own"
}

// elicit answers a server that asks outside of a call's own exchange, as revisions before 2026-07-28 have it. They do not say for which call they ask.
func (l *link) elicit(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	c, err := l.asker()
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: agent.AsError(err).Msg}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	res, err := c.ask(ctx, req.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: agent.AsError(err).Msg}
	}
	return res, nil
}

// asker is the call that a question is about: the only one under way, or one of the same run.
func (l *link) asker() (*call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found *call
	for _, c := range l.calls {
		switch {
		case found == nil:
			found = c
		case found.o.For.Run == "" || found.o.For.Run != c.o.For.Run:
			return nil, agent.Errorf(agent.Unavailable, "several calls are under way, and it cannot be told for which of them this is asked: ask in the call's own exchange, as MCP 2026-07-28 has it, or have the server's record say concurrency 1")
		}
	}
	if found == nil {
		return nil, agent.Errorf(agent.Unavailable, "no call is under way that this could be asked for")
	}
	return found, nil
}

// inputs answers what a server asks for within a call.
func (c *call) inputs(asked mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	if len(asked) > maxAsking {
		return nil, agent.Errorf(agent.Failed, "%s asks %d questions at once, more than %d", c.tool, len(asked), maxAsking)
	}
	out := make(mcp.InputResponseMap, len(asked))
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		switch q := asked[id].(type) {
		case *mcp.ElicitParams:
			res, err := c.ask(c.ctx, q)
			if err != nil {
				return nil, err
			}
			out[id] = res
		//lint:ignore SA1019 it is known to be refused
		case *mcp.ListRootsParams:
			return nil, agent.Errorf(agent.Failed, "%s asks for roots. %s", c.tool, refusal("roots/list"))
		//lint:ignore SA1019 as well
		case *mcp.CreateMessageParams, *mcp.CreateMessageWithToolsParams:
			return nil, agent.Errorf(agent.Failed, "%s asks for sampling. %s", c.tool, refusal(""))
		default:
			return nil, agent.Errorf(agent.Failed, "%s asks for something that Skep does not know", c.tool)
		}
	}
	return out, nil
}

// urlsOf reads the error by which a server asks for visits to URLs before it does anything (MCP 2025-11-25, elicitation, URL mode).
func urlsOf(err error) ([]*mcp.ElicitParams, bool) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != mcp.CodeURLElicitationRequired {
		return nil, false
	}
	var data struct {
		Elicitations []*mcp.ElicitParams `json:"elicitations"`
	}
	if json.Unmarshal(e.Data, &data) != nil || len(data.Elicitations) == 0 || len(data.Elicitations) > maxAsking {
		return nil, false
	}
	for _, q := range data.Elicitations {
		if q == nil || q.URL == "" {
			return nil, false
		}
		q.Mode, q.RequestedSchema = "url", nil
	}
	return data.Elicitations, true
}

func (c *call) visit(asked []*mcp.ElicitParams) error {
	for _, q := range asked {
		res, err := c.ask(c.ctx, q)
		if err != nil {
			return err
		}
		if res.Action != "accept" {
			return agent.Errorf(agent.Failed, "%s wants a person to open a URL, and that was refused", c.tool)
		}
	}
	return nil
}

// ask puts a server's question to a person.
func (c *call) ask(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	q, err := c.question(p)
	if err != nil {
		return nil, err
	}
	if c.o.Elicit == nil {
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
	if !c.link.beginAsking() {
		return nil, agent.Errorf(agent.Failed, "server %s asks more than %d questions at a time", c.link.k.s.rec.Name, maxAsking)
	}
	defer c.link.endAsking()
	c.clock.Pause()
	answer, err := c.o.Elicit(ctx, q)
	c.clock.Resume()
	switch {
	case err != nil:
		return nil, err
	case !answer.Allow:
		return &mcp.ElicitResult{Action: "decline"}, nil
	case q.URL != "":
		return &mcp.ElicitResult{Action: "accept"}, nil
	}
	content := map[string]any{}
	if len(answer.Content) > 0 {
		if err := json.Unmarshal(answer.Content, &content); err != nil {
			return nil, agent.Errorf(agent.Invalid, "the answer to server %s is no JSON object", c.link.k.s.rec.Name)
		}
	}
	defaults(q.Schema, content)
	return &mcp.ElicitResult{Action: "accept", Content: content}, nil
}

func (l *link) beginAsking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking >= maxAsking {
		return false
	}
	l.asking++
	return true
}

func (l *link) endAsking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking--
}

// question checks what a server asks. Secrets are asked for by URL alone (MCP 2025-11-25, elicitation, security considerations).
func (c *call) question(p *mcp.ElicitParams) (agent.Question, error) {
	name := c.link.k.s.rec.Name
	bad := func(format string, args ...any) (agent.Question, error) {
		return agent.Question{}, agent.Errorf(agent.Failed, "server %s asks for input, which is refused: "+format, append([]any{name}, args...)...)
	}
	q := agent.Question{Server: name, Message: p.Message}
	if len(p.Message) > maxMessage {
		return bad("its question has %d bytes, more than %d", len(p.Message), maxMessage)
	}
	if p.Mode == "url" || p.Mode == "" && p.URL != "" {
		u, err := url.Parse(p.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || len(p.URL) > 8<<10 {
			return bad("what a person is to open is not the URL of a web page")
		}
		q.URL = p.URL
		return q, nil
	}
	if p.Mode != "" && p.Mode != "form" || p.URL != "" {
		return bad("it is neither a form nor a URL")
	}
	if p.RequestedSchema == nil {
		p.RequestedSchema = map[string]any{"type": "object", "properties": map[string]any{}}
	}
	schema, err := json.Marshal(p.RequestedSchema)
	if err != nil || len(schema) > maxMessage {
		return bad("its form has more than %d bytes", maxMessage)
	}
	var form struct {
		Type       string `json:"type"`
		Properties map[string]struct {
			Type      string `json:"type"`
			Format    string `json:"format"`
			Title     string `json:"title"`
			WriteOnly bool   `json:"writeOnly"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(schema, &form); err != nil || form.Type != "" && form.Type != "object" {
		return bad("its form is not a flat object")
	}
	for field, f := range form.Properties {
		switch f.Type {
		case "string", "number", "integer", "boolean", "array":
		default:
			return bad("field %q of its form is neither text, a number, a choice, nor yes or no", kept(field, 100))
		}
		if f.Format == "password" || f.WriteOnly || f.Type != "boolean" && (secretive(field) || secretive(f.Title)) {
			return bad("field %q of its form looks like one for a secret, and those are only given at a URL of the server's own", kept(field, 100))
		}
	}
	q.Schema = schema
	return q, nil
}

// secretive reports whether a field is called as secrets are.
func secretive(name string) bool {
	var b strings.Builder
	for i, r := range name { // userPassword, user_password and User password are the same words
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte(' ')
		}
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r < '0' || r > '9' && r < 'a' || r > 'z' {
			r = ' '
		}
		b.WriteRune(r)
	}
	words := strings.Fields(b.String())
	whole := strings.Join(words, "")
	for _, s := range []string{"password", "passwd", "passphrase", "secret", "apikey", "accesskey", "privatekey", "credential", "accesstoken", "authtoken", "bearertoken", "mnemonic", "seedphrase", "creditcard", "cardnumber", "clientsecret"} {
		if strings.Contains(whole, s) {
			return true
		}
	}
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"token", "key", "pin", "otp", "cvv", "cvc", "pwd", "pass", "totp", "jwt", "ssn"}, w)
	})
}

// defaults fills in what a form's schema says of fields that the answer leaves out (SEP-1034).
func defaults(schema json.RawMessage, content map[string]any) {
	var form struct {
		Properties map[string]struct {
			Default any `json:"default"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &form) != nil {
		return
	}
	for field, f := range form.Properties {
		if _, there := content[field]; !there && f.Default != nil {
			content[field] = f.Default
		}
	}
}
