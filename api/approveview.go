package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/visible"
)

// approveView is what the page of a link shows. All texts were made visible; the template escapes them.
type approveView struct {
	CSS   any
	Title string

	App, Agent, Run, Expires, What string
	Calls                          []callView
	Ask                            *askView
	Open                           bool // there is something to answer

	Done, Error, Hint string
}

type callView struct {
	Number, Tool, Undo, Effect, Reason, Rule, Args, Cut, Warning string
	Danger                                                       bool
	Notes                                                        []string
}

type askView struct {
	Server, Message, URL string
	Fields               []fieldView
}

// fieldView is one property of the flat object that a question asks for.
type fieldView struct {
	Name, Label, Help, Kind string // Kind: text, number, integer, boolean or choice
	Choices                 []string
	Required                bool
}

func viewOf(a agent.Approval, expires string) approveView {
	v := approveView{
		Title: "May " + visible.Text(a.Agent) + " do this?", App: visible.Text(string(a.App)), Agent: visible.Text(a.Agent), Run: string(a.Run),
		Expires: expires, What: visible.Cut(visible.Text(a.Title), 300), Open: true,
	}
	for i, c := range a.Calls {
		n, of := a.Position(i)
		v.Calls = append(v.Calls, showCall(n, of, c))
		if of > 1 {
			v.Title = fmt.Sprintf("May %s make these %d calls?", visible.Text(a.Agent), of)
		}
	}
	if q := a.Asks; q != nil {
		v.Title = visible.Text(q.Server) + " asks"
		v.Ask = &askView{Server: visible.Text(q.Server), Message: visible.Block(q.Message), URL: visible.Text(q.URL), Fields: fieldsOf(q.Schema)}
	}
	return v
}

func showCall(n, of int, c agent.ApprovalCall) callView {
	v := callView{
		Tool: visible.Text(c.Tool), Effect: effectWords(c.Decision.Effect), Reason: visible.Text(c.Decision.Reason), Rule: visible.Text(c.Decision.Rule),
		Args: visible.JSON(c.Args), Danger: c.Decision.Effect.Grade() >= agent.ModifyExecute,
	}
	if c.Undo {
		v.Number, v.Undo = "undo:", "It is called only to take back the call above, if a later one fails."
		if of > 1 {
			v.Number = fmt.Sprintf("undo of %d:", n)
		}
	} else if of > 1 {
		v.Number = fmt.Sprintf("%d of %d", n, of)
	}
	for _, n := range c.Decision.Notes {
		v.Notes = append(v.Notes, visible.Text(n))
	}
	var text string
	switch {
	case agent.DigestOf(c.Args) == c.ArgsDigest:
	case json.Unmarshal(c.Args, &text) == nil:
		v.Args, v.Cut = visible.Block(text), "This is only the beginning: the arguments are too long for this page. skep approvals show --full shows all."
	default:
		v.Warning = "What is shown is not what would be sent. Do not allow it."
	}
	return v
}

// effectWords says what a tool can do.
func effectWords(e agent.Effect) string {
	switch e {
	case agent.Read:
		return "reads, and changes nothing"
	case agent.Modify:
		return "changes things, in ways that can be undone"
	case agent.ModifyExecute:
		return "changes things for good, or sets off what others run"
	case agent.Execute:
		return "runs what it is given"
	}
	return "nobody has said what it can do"
}

// flatSchema is the schema of a question's answer (MCP elicitation): a flat object.
type flatSchema struct {
	Properties map[string]struct {
		Type, Title, Description string
		Enum                     []string
		OneOf                    []struct{ Const string }
	}
	Required []string
}

func fieldsOf(schema json.RawMessage) (out []fieldView) {
	var s flatSchema
	_ = json.Unmarshal(schema, &s)
	for name, p := range s.Properties {
		f := fieldView{
			Name: name, Label: visible.Text(name), Help: visible.Text(p.Description), Kind: "text", Required: slices.Contains(s.Required, name), Choices: p.Enum,
		}
		if p.Title != "" {
			f.Label = visible.Text(p.Title)
		}
		for _, c := range p.OneOf {
			f.Choices = append(f.Choices, c.Const)
		}
		switch {
		case len(f.Choices) > 0:
			f.Kind = "choice"
		case p.Type == "boolean" || p.Type == "number" || p.Type == "integer":
			f.Kind = p.Type
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b fieldView) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// contentOf makes the object that a question asks for of the form's fields.
func contentOf(q agent.Question, form url.Values) (json.RawMessage, error) {
	if q.URL != "" {
		return nil, nil
	}
	out := map[string]any{}
	for _, f := range fieldsOf(q.Schema) {
		text := form.Get("field." + f.Name)
		switch {
		case f.Kind == "boolean":
			out[f.Name] = text == "yes"
		case text == "" && !f.Required:
		case f.Kind == "number" || f.Kind == "integer":
			if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
				return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%q must be a number", f.Label), Hint: "go back and write one"}
			}
			out[f.Name] = json.Number(text)
		default:
			out[f.Name] = text
		}
	}
	return json.Marshal(out)
}
