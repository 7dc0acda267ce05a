package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// ModelInfo is something that may be asked for: a route as @NAME, or a model as PROVIDER/MODEL.
type ModelInfo struct {
	ID       string    `json:"id"`
	Provider string    `json:"provider"` // "" for a route
	Created  time.Time `json:"created"`
	Title    string    `json:"title"`
}

// Models lists what may be asked for.
func (c *Client) Models(ctx context.Context) ([]ModelInfo, error) {
	l, err := get[List[ModelInfo]](ctx, c, path("models"))
	return l.Items, err
}

// NewProvider is a provider as it is set. Turns are those of a scripted provider, as text.
type NewProvider struct {
	agent.Provider
	Turns string
}

// The records about models as they are sent: without what the server sets.
func sent(v any, without ...string) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	for _, name := range append(without, "name", "app", "created", "changed") {
		delete(m, name)
	}
	for name, raw := range m { // fields that stand for nothing
		switch string(raw) {
		case "null", "0", "false", `""`:
			delete(m, name)
		}
	}
	return m, nil
}

func putModel[T any](ctx context.Context, c *Client, kind, name string, v any, more map[string]string) (out T, err error) {
	body, err := sent(v)
	if err != nil {
		return out, err
	}
	for k, text := range more {
		if text != "" {
			if body[k], err = json.Marshal(text); err != nil {
				return out, err
			}
		}
	}
	return out, c.do(ctx, http.MethodPut, path("models", kind, name), nil, body, &out)
}

func listModels[T any](ctx context.Context, c *Client, kind string, p agent.Page) (List[T], error) {
	return get[List[T]](ctx, c, path("models", kind)+pageQuery(p).encode())
}

// PutProvider sets a provider of models. Its Revision is the one that it must have; 0 is for whatever is there.
func (c *Client) PutProvider(ctx context.Context, p NewProvider) (agent.Provider, error) {
	return putModel[agent.Provider](ctx, c, "providers", p.Name, p.Provider, map[string]string{"turns": p.Turns})
}

// Providers lists providers of models, by name.
func (c *Client) Providers(ctx context.Context, p agent.Page) (List[agent.Provider], error) {
	return listModels[agent.Provider](ctx, c, "providers", p)
}

// Provider returns a provider of models.
func (c *Client) Provider(ctx context.Context, name string) (agent.Provider, error) {
	return get[agent.Provider](ctx, c, path("models", "providers", name))
}

// DeleteProvider deletes a provider of models. Secrets that it names stay.
func (c *Client) DeleteProvider(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("models", "providers", name), nil, nil, nil)
}

// PutModelRoute sets a route to models. Its Revision is the one that it must have; 0 is for whatever is there.
func (c *Client) PutModelRoute(ctx context.Context, r agent.ModelRoute) (agent.ModelRoute, error) {
	return putModel[agent.ModelRoute](ctx, c, "routes", r.Name, r, nil)
}

// ModelRoutes lists routes to models, by name.
func (c *Client) ModelRoutes(ctx context.Context, p agent.Page) (List[agent.ModelRoute], error) {
	return listModels[agent.ModelRoute](ctx, c, "routes", p)
}

// ModelRoute returns a route to models.
func (c *Client) ModelRoute(ctx context.Context, name string) (agent.ModelRoute, error) {
	return get[agent.ModelRoute](ctx, c, path("models", "routes", name))
}

// DeleteModelRoute deletes a route to models.
func (c *Client) DeleteModelRoute(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("models", "routes", name), nil, nil, nil)
}

// PutModelLimit sets a limit. Its Revision is the one that it must have; 0 is for whatever is there.
func (c *Client) PutModelLimit(ctx context.Context, l agent.ModelLimit) (agent.ModelLimit, error) {
	return putModel[agent.ModelLimit](ctx, c, "limits", l.Name, l, nil)
}

// ModelLimits lists limits, by name.
func (c *Client) ModelLimits(ctx context.Context, p agent.Page) (List[agent.ModelLimit], error) {
	return listModels[agent.ModelLimit](ctx, c, "limits", p)
}

// ModelLimit returns a limit.
func (c *Client) ModelLimit(ctx context.Context, name string) (agent.ModelLimit, error) {
	return get[agent.ModelLimit](ctx, c, path("models", "limits", name))
}

// ModelLimitUse returns what is used of a limit now, and by whom, the most frequent first.
func (c *Client) ModelLimitUse(ctx context.Context, name string) ([]agent.LimitUse, error) {
	l, err := get[List[agent.LimitUse]](ctx, c, path("models", "limits", name, "use"))
	return l.Items, err
}

// DeleteModelLimit deletes a limit.
func (c *Client) DeleteModelLimit(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("models", "limits", name), nil, nil, nil)
}

// PutGuardrail sets a guardrail. Its Revision is the one that it must have; 0 is for whatever is there.
func (c *Client) PutGuardrail(ctx context.Context, g agent.Guardrail) (agent.Guardrail, error) {
	return putModel[agent.Guardrail](ctx, c, "guardrails", g.Name, g, nil)
}

// Guardrails lists guardrails, by name.
func (c *Client) Guardrails(ctx context.Context, p agent.Page) (List[agent.Guardrail], error) {
	return listModels[agent.Guardrail](ctx, c, "guardrails", p)
}

// Guardrail returns a guardrail.
func (c *Client) Guardrail(ctx context.Context, name string) (agent.Guardrail, error) {
	return get[agent.Guardrail](ctx, c, path("models", "guardrails", name))
}

// DeleteGuardrail deletes a guardrail.
func (c *Client) DeleteGuardrail(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, path("models", "guardrails", name), nil, nil, nil)
}

// NewModelKey is a virtual key to make. Value is one that clients have already; it is drawn unless given.
type NewModelKey struct {
	Name    string          `json:"name"`
	Agent   string          `json:"agent,omitempty"`
	Session agent.SessionID `json:"session,omitempty"`
	Run     agent.RunID     `json:"run,omitempty"`
	User    string          `json:"user,omitempty"`
	Models  []string        `json:"models,omitempty"`
	Expires time.Time       `json:"expires,omitzero"`
	Value   string          `json:"value,omitempty"`
}

// ModelKeyValue is a new virtual key with its value, which is shown this once.
type ModelKeyValue struct {
	agent.ModelKey
	Value string `json:"value"`
}

// ModelKeyPatch changes the fields that are set.
type ModelKeyPatch struct {
	Name     *string    `json:"name,omitempty"`
	User     *string    `json:"user,omitempty"`
	Models   *[]string  `json:"models,omitempty"`
	Disabled *bool      `json:"disabled,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
}

// CreateModelKey makes a virtual key, which is good for calls of models alone.
func (c *Client) CreateModelKey(ctx context.Context, k NewModelKey) (out ModelKeyValue, err error) {
	return out, c.do(ctx, http.MethodPost, path("models", "keys"), nil, k, &out)
}

// ModelKeys lists virtual keys, oldest first.
func (c *Client) ModelKeys(ctx context.Context, p agent.Page) (List[agent.ModelKey], error) {
	return listModels[agent.ModelKey](ctx, c, "keys", p)
}

// ModelKey returns a virtual key.
func (c *Client) ModelKey(ctx context.Context, id string) (agent.ModelKey, error) {
	return get[agent.ModelKey](ctx, c, path("models", "keys", id))
}

// UpdateModelKey changes a virtual key.
func (c *Client) UpdateModelKey(ctx context.Context, id string, patch ModelKeyPatch) (out agent.ModelKey, err error) {
	return out, c.do(ctx, http.MethodPatch, path("models", "keys", id), nil, patch, &out)
}

// DeleteModelKey deletes a virtual key, which stops working at once.
func (c *Client) DeleteModelKey(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, path("models", "keys", id), nil, nil, nil)
}

// ModelAsk is one question to a model.
type ModelAsk struct {
	Model     string // @ROUTE, PROVIDER/MODEL, or a name that leads to one
	System    string
	Text      string
	User      string // whom the call is counted for
	MaxTokens int64  // 0 leaves it to the provider
}

// ModelAnswer is what a model said.
type ModelAnswer struct {
	Model  string `json:"model"`
	Text   string `json:"text"`
	Stop   string `json:"stop"`   // why it ended, such as stop, length or tool_calls
	Input  int64  `json:"input"`  // tokens
	Output int64  `json:"output"` // tokens
}

// AskModel asks a model in the protocol of OpenAI's chat completions, and calls each with the pieces of the answer as they come. each may be nil.
func (c *Client) AskModel(ctx context.Context, q ModelAsk, each func(text string) error) (ModelAnswer, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body := map[string]any{"model": q.Model, "stream": true, "stream_options": map[string]bool{"include_usage": true}}
	messages := []message{{"user", q.Text}}
	if q.System != "" {
		messages = append([]message{{"system", q.System}}, messages...)
	}
	body["messages"] = messages
	if q.User != "" {
		body["user"] = q.User
	}
	if q.MaxTokens > 0 {
		body["max_completion_tokens"] = q.MaxTokens
	}
	b, err := json.Marshal(body)
	if err != nil {
		return ModelAnswer{}, err
	}
	res, err := c.send(ctx, http.MethodPost, "/ai/v1/chat/completions", header{"Content-Type": "application/json", "Accept": "text/event-stream"}, b)
	if err != nil {
		return ModelAnswer{}, err
	}
	defer res.Body.Close()
	return readAnswer(ctx, c, res.Body, each)
}

// chatChunk is what is read of a piece of an answer.
type chatChunk struct {
	Model   string `json:"model"`
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
			Refusal string `json:"refusal"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Input  int64 `json:"prompt_tokens"`
		Output int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func readAnswer(ctx context.Context, c *Client, stream io.Reader, each func(string) error) (a ModelAnswer, err error) {
	lines := bufio.NewReader(stream)
	var text strings.Builder
	defer func() { a.Text = text.String() }()
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return a, &agent.Error{Kind: agent.Unavailable, Msg: "the answer broke off", Hint: "ask again"}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return a, c.unreachable(ctx, err)
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		if !ok {
			continue
		}
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			return a, nil
		}
		var chunk chatChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return a, agent.Wrap(agent.Internal, err, "the server's answer is not understood")
		}
		if chunk.Error != nil {
			return a, agent.Errorf(agent.Unavailable, "the answer broke off: %s", chunk.Error.Message)
		}
		if chunk.Model != "" {
			a.Model = chunk.Model
		}
		if u := chunk.Usage; u != nil {
			a.Input, a.Output = u.Input, u.Output
		}
		for _, choice := range chunk.Choices {
			if choice.Finish != "" {
				a.Stop = choice.Finish
			}
			piece := choice.Delta.Content + choice.Delta.Refusal
			text.WriteString(piece)
			if piece != "" && each != nil {
				if err := each(piece); err != nil {
					return a, err
				}
			}
		}
	}
}

// RecordProvider calls each with every call to a provider that ends from now on, as a line of a script that tells its answers again. It begins with an empty
// line as soon as it records, and goes on until ctx or each ends it.
func (c *Client) RecordProvider(ctx context.Context, name string, each func(line []byte) error) error {
	res, err := c.send(ctx, http.MethodGet, path("models", "providers", name, "record"), header{"Accept": typeNDJSON}, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for first := true; ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return c.unreachable(ctx, err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 && !first {
			continue
		}
		first = false
		if err := each(line); err != nil {
			return err
		}
	}
}

// ModelLogging returns what the app keeps of calls to models.
func (c *Client) ModelLogging(ctx context.Context) (agent.ModelLogging, error) {
	return get[agent.ModelLogging](ctx, c, path("models", "logging"))
}

// PutModelLogging sets what the app keeps of calls to models: Days and Size.
func (c *Client) PutModelLogging(ctx context.Context, l agent.ModelLogging) (out agent.ModelLogging, err error) {
	body := map[string]int{"days": l.Days, "size": l.Size}
	return out, c.do(ctx, http.MethodPut, path("models", "logging"), nil, body, &out)
}

// ModelLogs lists calls to models that are kept, the newest first, without their texts.
func (c *Client) ModelLogs(ctx context.Context, p agent.Page) (List[agent.ModelLog], error) {
	return listModels[agent.ModelLog](ctx, c, "log", p)
}

// ModelLog returns a call to a model that is kept.
func (c *Client) ModelLog(ctx context.Context, call string) (agent.ModelLog, error) {
	return get[agent.ModelLog](ctx, c, path("models", "log", call))
}
