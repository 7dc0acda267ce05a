package mcp

//lint:file-ignore SA1019 clients of before 2026-07-28 still know logging, sampling and roots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// follower waits for a run on behalf of one call of a client.
type follower struct {
	door    *door
	req     *sdk.CallToolRequest
	run     agent.Run
	carried carried
	asked   bool // the client's person was given a link already

	began    bool
	progress float64
	waiting  time.Time         // since when the run waits for a person; zero while it does not
	watch    func(agent.Event) // sees each event; may be nil
	answers  chan elicited     // of a person whom an old client asks; nil while nobody is asked
	logs     strings.Builder   // what the code has printed
	unshown  int               // lines that are not in logs
	open     []agent.Approval  // questions that nobody has answered
}

type elicited struct {
	res *sdk.ElicitResult
	err error
}

// beginAfter is when a call is told to be one that takes a while.
const beginAfter = time.Second

// follow waits until the run has ended, a person has to be asked, or the client has gone.
func (f *follower) follow(ctx context.Context, shape shaper) *sdk.CallToolResult {
	d := f.door
	sub, err := d.h.rt.SubscribeRun(ctx, d.key.app, f.run.ID, 0)
	if err != nil {
		return failed(err)
	}
	defer sub.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	for {
		until := beginAfter - time.Since(began)
		if f.began {
			until = 5 * time.Second
		}
		if !f.waiting.IsZero() {
			until = min(until, d.h.o.Patience-time.Since(f.waiting))
		}
		next, cancel := context.WithTimeout(ctx, until)
		events, err := sub.Next(next)
		cancel()
		switch {
		case err == nil:
			for _, e := range events {
				f.see(ctx, e.Event)
			}
		case errors.Is(err, io.EOF):
			return f.ended(ctx, shape)
		case ctx.Err() != nil:
			return f.left(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			f.begin()
			if d.h.stopping.Load() {
				return f.later("the server is stopping; the run goes on when it is back")
			}
		default:
			return failed(err)
		}
		if res := f.person(ctx); res != nil {
			return res
		}
	}
}

func (f *follower) begin() {
	if !f.began {
		f.began = true
		f.door.h.begin(f.req.Extra)
	}
}

// see tells the client what happens in the run.
func (f *follower) see(ctx context.Context, e agent.Event) {
	if f.watch != nil {
		f.watch(e)
	}
	switch e.Kind {
	case agent.EventApprovalRequested:
		var a agent.Approval
		if json.Unmarshal(e.Data, &a) == nil {
			f.open = append(f.open, a)
		}
		f.say(ctx, "waiting for a person: "+summary(a))
	case agent.EventApprovalAnswered:
		var a agent.ApprovalAnswered
		if json.Unmarshal(e.Data, &a) == nil {
			f.answered(a.ID)
		}
		f.say(ctx, "answered: "+string(a.ID))
	case agent.EventToolCalled:
		var u agent.ToolUse
		if json.Unmarshal(e.Data, &u) == nil && f.watch == nil {
			f.say(ctx, "calls "+u.Tool)
		}
	case agent.EventToolReturned:
		var u agent.ToolUse
		if json.Unmarshal(e.Data, &u) == nil && f.watch == nil {
			f.say(ctx, u.Tool+" returned"+map[bool]string{true: ": " + u.Error}[u.Error != ""])
		}
	case agent.EventLog:
		var l agent.LogLine
		if json.Unmarshal(e.Data, &l) == nil {
			f.print(l)
		}
	case agent.EventEmit:
		f.emitted(ctx, e)
	}
}

// maxLogs is how much of what a script prints is shown, in bytes.
const maxLogs = 4 << 10

func (f *follower) print(l agent.LogLine) {
	if f.logs.Len()+len(l.Message) > maxLogs {
		f.unshown++
		return
	}
	if l.Level > agent.LevelInfo {
		f.logs.WriteString(l.Level.String() + ": ")
	}
	f.logs.WriteString(l.Message + "\n")
}

// printed is what the code has printed, for a model.
func (f *follower) printed() string {
	text := "Printed:\n" + f.logs.String()
	if f.unshown > 0 {
		text += fmt.Sprintf("[and %d lines more: skep run attach %s]", f.unshown, f.run.ID)
	}
	return strings.TrimRight(text, "\n")
}

func (f *follower) answered(id agent.ApprovalID) {
	f.open = slices.DeleteFunc(f.open, func(a agent.Approval) bool { return a.ID == id })
	if len(f.open) == 0 {
		f.waiting = time.Time{}
	}
}

// say sends a progress notification to a client that wants them.
func (f *follower) say(ctx context.Context, message string) {
	f.progress++
	f.notify(ctx, f.progress, 0, message)
}

func (f *follower) notify(ctx context.Context, done, total float64, message string) {
	token := f.req.Params.GetProgressToken()
	if token == nil {
		return
	}
	f.begin()
	_ = f.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // whose client may have gone: it shows elsewhere
		ProgressToken: token, Progress: done, Total: total, Message: phrase.Clip(message, 1000),
	})
}

// emitted passes on an event of the code's own: "progress" and "mcp.progress" with {progress, total, message}, or any text.
func (f *follower) emitted(ctx context.Context, e agent.Event) {
	switch e.Name {
	case "progress", "mcp.progress":
		var p struct {
			Progress *float64 `json:"progress"`
			Total    float64  `json:"total"`
			Message  string   `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(e.Data, &p) == nil && p.Progress != nil:
			f.progress = max(f.progress, *p.Progress)
			f.notify(ctx, *p.Progress, p.Total, p.Message)
		case p.Message != "":
			f.say(ctx, p.Message)
		case json.Unmarshal(e.Data, &text) == nil:
			f.say(ctx, text)
		}
	case "mcp.log":
		var l struct {
			Level  sdk.LoggingLevel `json:"level"`
			Logger string           `json:"logger"`
			Data   any              `json:"data"`
		}
		if json.Unmarshal(e.Data, &l) != nil || l.Data == nil {
			l.Data = e.Data
		}
		if !logLevels[l.Level] {
			l.Level = "info"
		}
		_ = f.req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: l.Level, Logger: l.Logger, Data: l.Data})
	}
}

var logLevels = map[sdk.LoggingLevel]bool{
	"debug": true, "info": true, "notice": true, "warning": true, "error": true, "critical": true, "alert": true, "emergency": true,
}

// ended makes the result of a run that has ended.
func (f *follower) ended(ctx context.Context, shape shaper) *sdk.CallToolResult {
	run, err := f.door.h.st.Run(ctx, f.door.key.app, f.run.ID)
	if err != nil {
		return failed(err)
	}
	if run.Status == agent.Completed {
		return shape(ctx, f, run)
	}
	res := runFailed(run)
	if f.logs.Len() > 0 && f.watch == nil {
		res.Content = append(res.Content, &sdk.TextContent{Text: f.printed()})
	}
	return res
}

// left is for a client that has gone, or wants no more: the run is cancelled, unless it is the server that stops.
func (f *follower) left(ctx context.Context) *sdk.CallToolResult {
	if f.door.h.stopping.Load() {
		return f.later("the server is stopping; the run goes on when it is back")
	}
	f.door.cancel(ctx, f.run.ID)
	return failed(agent.Errorf(agent.Cancelled, "the call was cancelled, and run %s with it", f.run.ID))
}

// person sees to what the run asks of a person. It returns a result when the call ends with it.
func (f *follower) person(ctx context.Context) *sdk.CallToolResult {
	if f.declined() {
		return f.giveUp(ctx)
	}
	if len(f.open) == 0 {
		return nil
	}
	if f.waiting.IsZero() {
		f.waiting = time.Now()
		f.begin()
		if res := f.elicit(ctx); res != nil {
			return res
		}
	}
	if time.Since(f.waiting) >= f.door.h.o.Patience {
		return f.later("it waits for a person: " + summary(f.open[0]))
	}
	f.say(ctx, fmt.Sprintf("waiting for a person to answer %s (skep approvals)", f.open[0].ID))
	return nil
}

// declined takes the answers that have come, and reports whether one of them says no.
func (f *follower) declined() bool {
	for {
		select {
		case e := <-f.answers:
			if e.err == nil && e.res.Action == "decline" {
				return true
			}
		default:
			return false
		}
	}
}

// urlElicits reports whether the client can have its person open a link.
func urlElicits(req *sdk.CallToolRequest) bool {
	c := req.ClientCapabilities()
	return c != nil && c.Elicitation != nil && c.Elicitation.URL != nil
}

// elicit has the client show its person a link by which to answer. A client of 2026-07-28 comes back with a state; an older one is asked
// while its call waits. A client that cannot do so waits with the call.
func (f *follower) elicit(ctx context.Context) *sdk.CallToolResult {
	who := callerOf(f.req.Extra)
	if f.asked || f.door.h.o.Link == nil || !urlElicits(f.req) {
		return nil
	}
	f.asked = true
	asks := sdk.InputRequestMap{}
	for _, a := range f.open[:min(len(f.open), maxLinks)] {
		link, err := f.door.h.o.Link(ctx, who, a.ID)
		if err != nil || link == "" {
			f.door.h.o.Log.DebugContext(ctx, "mcp: no link for an approval", "approval", a.ID, "err", err)
			return nil
		}
		asks[string(a.ID)] = &sdk.ElicitParams{
			Mode: "url", ElicitationID: string(a.ID), URL: link,
			Message: "A person has to allow this, on a page of Skep: " + summary(a),
		}
	}
	if f.req.ProtocolVersion() >= protocol2026 {
		f.carried.Run = f.run.ID
		return &sdk.CallToolResult{InputRequests: asks, RequestState: f.door.h.seal.close(f.carried)}
	}
	f.begin()
	f.answers = make(chan elicited, len(asks))
	for _, ask := range asks {
		go func() {
			res, err := f.req.Session.Elicit(ctx, ask.(*sdk.ElicitParams)) // ends with ctx, when the call does
			f.answers <- elicited{res, err}
		}()
	}
	return nil
}

// maxLinks is how many questions a person is shown at once.
const maxLinks = 8

// giveUp ends a run that a person would not let go on.
func (f *follower) giveUp(ctx context.Context) *sdk.CallToolResult {
	f.door.cancel(ctx, f.run.ID)
	return failed(agent.Errorf(agent.Denied, "a person declined to approve it, and run %s was cancelled", f.run.ID))
}

// later ends the call while its run goes on, and says how to get at its result.
func (f *follower) later(why string) *sdk.CallToolResult {
	how := fmt.Sprintf("call the tool %s with {\"run\": %q} for its result", toolRunResult, f.run.ID)
	if f.door.key.Kind == Tools || f.door.key.Kind == Serve {
		how = fmt.Sprintf("its result is what skep run show %s shows, later", f.run.ID)
	}
	text := fmt.Sprintf("Run %s has not ended: %s. Do not make the call again; %s.", f.run.ID, why, how)
	if len(f.open) > 0 {
		text += fmt.Sprintf(" The person answers with: skep approvals approve %s (or deny)", f.open[0].ID)
	}
	return &sdk.CallToolResult{
		IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}, Meta: sdk.Meta{"dev.skep/run": string(f.run.ID)},
	}
}

// summary says what a person is asked, in a line.
func summary(a agent.Approval) string {
	if a.Asks != nil {
		return phrase.Clip(a.Asks.Server+" asks: "+a.Asks.Message, 300)
	}
	var names []string
	for _, c := range a.Calls {
		if !c.Undo {
			names = append(names, c.Tool)
		}
	}
	s := strings.Join(names, ", ")
	if a.Title != "" {
		s = a.Title + ": " + s
	}
	return phrase.Clip(s, 300)
}
