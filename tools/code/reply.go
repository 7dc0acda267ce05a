package code

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// DefaultTokens is how long a reply gets unless somebody says so, in tokens of a model.
const DefaultTokens = 6000

// MinTokens is the shortest reply.
const MinTokens = 400

// Reply is what a model is told of a script's run. Each of its fields is cut to a share of the whole, so none drives out another.
type Reply struct {
	Status string          `json:"status"` // of the run: completed, failed, waiting, ...
	Run    string          `json:"run,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *ReplyError     `json:"error,omitempty"`
	Asks   []ReplyAsk      `json:"asks,omitempty"` // questions to a person that hold the run
	Calls  []ReplyCall     `json:"calls,omitempty"`
	Logs   []string        `json:"logs,omitempty"`
	Notice string          `json:"notice,omitempty"` // what was left out, and where it is
}

// ReplyError is why a script failed.
type ReplyError struct {
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	Position string `json:"position,omitempty"` // LINE:COLUMN of the script
	Frame    string `json:"frame,omitempty"`    // that line with a caret below
	Call     string `json:"call,omitempty"`     // the tool whose call failed
}

// ReplyCall is one call of a tool.
type ReplyCall struct {
	Tool    string  `json:"tool"`
	Effect  string  `json:"effect,omitempty"`
	Verdict string  `json:"verdict,omitempty"`
	Ms      float64 `json:"ms,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// ReplyAsk is one question to a person.
type ReplyAsk struct {
	ID      string   `json:"id"`
	Title   string   `json:"title,omitempty"`
	Calls   []string `json:"calls,omitempty"` // TOOL ARGUMENTS
	Message string   `json:"message,omitempty"`
	Expires string   `json:"expires,omitempty"`
}

// Outcome is what a reply is made of.
type Outcome struct {
	Run      agent.RunID
	Status   agent.RunStatus
	Output   json.RawMessage
	Artifact string // where the whole output is, when it is kept
	Error    *agent.RunError
	Source   string // of the script, as its author wrote it
	Calls    []agent.ToolUse
	Logs     []agent.LogLine
	Asks     []agent.Approval
	More     int // lines and calls that are not here
}

// NewReply makes a reply of at most about so many tokens; 0 means DefaultTokens, and fewer than MinTokens are MinTokens. As JSON it has at most
// tokens times BytesPerToken bytes.
func NewReply(o Outcome, tokens int) Reply {
	if tokens <= 0 {
		tokens = DefaultTokens
	}
	limit := max(tokens, MinTokens) * BytesPerToken
	for share := limit; ; share = share * 4 / 5 {
		r := o.reply(share)
		if data, err := json.Marshal(r); err == nil && len(data) <= limit || share < minCap {
			return r
		}
	}
}

// reply shares out n bytes: the output gets what the error, questions, calls and lines leave, which is at least half.
func (o Outcome) reply(n int) Reply {
	r := Reply{Status: o.Status.String(), Run: string(o.Run)}
	var notes []string
	if o.Error != nil {
		r.Error = o.failure(n / 4)
	}
	left := 0
	r.Asks, left = o.questions(n / 8)
	if left > 0 {
		notes = append(notes, plural(left, "more question"))
	}
	r.Calls, left = o.calls(n / 8)
	if left > 0 {
		notes = append(notes, plural(left, "more call"))
	}
	r.Logs, left = o.lines(n / 8)
	if left > 0 {
		notes = append(notes, plural(left, "more line")+" of output")
	}
	if o.More > 0 {
		notes = append(notes, plural(o.More, "more event")+" in the run")
	}
	if len(notes) > 0 {
		r.Notice = "left out: " + strings.Join(notes, ", ")
	}
	if len(o.Output) > 0 {
		used, _ := json.Marshal(r)
		out, notice := Cap(o.Output, max(n-len(used)-300, n/4), clip(o.Artifact, 200))
		r.Output = out
		if notice != "" {
			r.Notice = strings.TrimPrefix(r.Notice+"; output: "+notice, "; ")
		}
	}
	return r
}

// failure tells why the run failed, by the line of the script and by the call whose error came last.
func (o Outcome) failure(n int) *ReplyError {
	e := &ReplyError{Message: shorten(o.Error.Msg, n/3), Hint: clip(o.Error.Hint, max(n/8, 60))}
	if o.Error.Pos.Line > 0 {
		p := o.Error.Pos
		e.Position = clip(p.String(), 200)
		e.Frame = clip(Frame(o.Source, p), max(n/4, 80))
	}
	for i := len(o.Calls) - 1; i >= 0; i-- {
		if c := o.Calls[i]; c.Error != "" && strings.Contains(o.Error.Msg, firstLine(c.Error)) {
			e.Call = clip(c.Tool, 200)
			break
		}
	}
	return e
}

func firstLine(s string) string { return clip(s[:lineEnd(s, 0)], 1<<10) }

// questions are those that fit into n bytes, and how many do not.
func (o Outcome) questions(n int) (out []ReplyAsk, left int) {
	width := min(300, n/8)
	for i, a := range o.Asks {
		q := ReplyAsk{ID: string(a.ID), Title: clip(line(a.Title), width)}
		if !a.Expires.IsZero() {
			q.Expires = a.Expires.UTC().Format(time.RFC3339)
		}
		if a.Asks != nil {
			q.Message = clip(line(a.Asks.Server+": "+a.Asks.Message), width)
		}
		for j, c := range a.Calls {
			if j == 10 {
				q.Calls = append(q.Calls, "and "+strconv.Itoa(len(a.Calls)-j)+" more")
				break
			}
			text := c.Tool + " " + string(c.Args)
			if c.Undo {
				text = "undo: " + text
			}
			q.Calls = append(q.Calls, clip(line(text), width))
		}
		data, _ := json.Marshal(q)
		if n -= len(data); n < 0 {
			return out, len(o.Asks) - i
		}
		out = append(out, q)
	}
	return out, 0
}

// calls are those that fit into n bytes, and how many do not. Those that failed go first when not all do; the order stays.
func (o Outcome) calls(n int) (out []ReplyCall, left int) {
	all := make([]ReplyCall, len(o.Calls))
	size := make([]int, len(o.Calls))
	for i, c := range o.Calls {
		all[i] = ReplyCall{Tool: clip(c.Tool, 200), Ms: float64(c.Duration.Microseconds()) / 1000, Error: clip(line(c.Error), 200)}
		if c.Decision != nil {
			all[i].Effect, all[i].Verdict = c.Decision.Effect.String(), c.Decision.Verdict.String()
		}
		data, _ := json.Marshal(all[i])
		size[i] = len(data) + 1
	}
	taken := make([]bool, len(all))
	for _, failed := range []bool{true, false} {
		for i, c := range all {
			if (c.Error != "") == failed && size[i] <= n {
				taken[i] = true
				n -= size[i]
			}
		}
	}
	for i, c := range all {
		if taken[i] {
			out = append(out, c)
		}
	}
	return out, len(all) - len(out)
}

// lines are the last that fit into n bytes, and how many do not.
func (o Outcome) lines(n int) (out []string, left int) {
	from := len(o.Logs)
	var texts []string
	width := min(1000, n/4)
	for from > 0 {
		l := o.Logs[from-1]
		text := shorten(l.Message, width)
		if l.Level != agent.LevelInfo {
			text = l.Level.String() + ": " + text
		}
		if n -= len(jsonString(text)) + 1; n < 0 {
			break
		}
		texts = append(texts, text)
		from--
	}
	for i := len(texts) - 1; i >= 0; i-- {
		out = append(out, texts[i])
	}
	return out, from
}

// frameWidth is how much of a long line a frame shows, in characters.
const frameWidth = 120

// Frame is the line of a source at p, with its number, and a caret below the column, or "" when there is no such line. Tabs are shown as one space,
// and what does not show is left out.
func Frame(source string, p agent.Pos) string {
	if p.Line < 1 {
		return ""
	}
	n := 1
	for ; n < p.Line; n++ {
		_, rest, ok := strings.Cut(source, "\n")
		if !ok {
			return ""
		}
		source = rest
	}
	text := source[:lineEnd(source, 0)]
	var shown []rune
	caret, column := -1, 1
	for _, r := range text {
		if column >= p.Column && caret < 0 {
			caret = len(shown)
		}
		column++
		if r > 0xffff {
			column++
		}
		switch {
		case r == '\t':
			shown = append(shown, ' ')
		case !hidden(r):
			shown = append(shown, r)
		}
	}
	if caret < 0 {
		caret = len(shown)
	}
	ellipsis := ""
	if from := caret - frameWidth*2/3; len(shown) > frameWidth && from > 0 {
		shown, caret, ellipsis = shown[from:], caret-from, "…"
	}
	if len(shown) > frameWidth {
		shown = append(shown[:frameWidth:frameWidth], '…')
	}
	number := strconv.Itoa(p.Line)
	out := number + " | " + ellipsis + strings.TrimRight(string(shown), " ")
	if p.Column < 1 {
		return out
	}
	return out + "\n" + strings.Repeat(" ", len(number)) + " | " + strings.Repeat(" ", len([]rune(ellipsis))+caret) + "^"
}
