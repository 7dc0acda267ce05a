package api

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// eventQuery asks for a log's events in one of three forms: a JSON page, SSE or NDJSON.
type eventQuery struct {
	After  int64  `query:"after" doc:"number of the last event seen; 0 for all"`
	LastID string `header:"Last-Event-ID" doc:"the same, as EventSource sends it; wins over after"`
	Follow bool   `query:"follow" default:"true" doc:"whether SSE and NDJSON go on at the end of the log"`
	Limit  int    `query:"limit" doc:"most events of a JSON page, up to 1000; 50 unless given"`
	Accept string `header:"Accept" doc:"application/json, text/event-stream or application/x-ndjson"`
}

type sessionEventsRequest struct {
	ID agent.SessionID `path:"id"`
	eventQuery
}

// sessionEvents answers with a list of events or a stream of them, as do agentLogs and runEvents.
func (s *Server) sessionEvents(ctx context.Context, q sessionEventsRequest) (any, error) {
	if _, err := s.st.Session(ctx, appOf(ctx), q.ID); err != nil {
		return nil, err
	}
	return s.events(ctx, q.eventQuery, part{log: store.SessionLog(appOf(ctx), q.ID)})
}

type agentLogsRequest struct {
	Name string `path:"name"`
	eventQuery
}

func (s *Server) agentLogs(ctx context.Context, q agentLogsRequest) (any, error) {
	a, err := s.st.Agent(ctx, appOf(ctx), q.Name)
	if err != nil {
		return nil, err
	}
	return s.events(ctx, q.eventQuery, part{log: store.AgentLog(appOf(ctx), a.ID)})
}

type runEventsRequest struct {
	ID agent.RunID `path:"id"`
	eventQuery
}

func (s *Server) runEvents(ctx context.Context, q runEventsRequest) (any, error) {
	r, err := s.st.Run(ctx, appOf(ctx), q.ID)
	if err != nil {
		return nil, err
	}
	return s.events(ctx, q.eventQuery, part{log: store.SessionLog(appOf(ctx), r.Session), run: q.ID, first: r.FirstSeq})
}

// part is a log, or what it has of one run.
type part struct {
	log   store.Log
	run   agent.RunID // "" for all of the log
	first int64       // number of the first event that can be in it; 0 means 1

	only func(agent.Event) bool // nil takes all

	// open follows a log that log does not name; nil for one that it does.
	open func(ctx context.Context, after int64) (*runtime.Subscription, error)
}

// take reports whether the part has e, and whether nothing can follow it.
func (p part) take(e agent.Event) (has, last bool) {
	if p.run == "" {
		return p.only == nil || p.only(e), false
	}
	return e.Run == p.run, e.Run == p.run && e.Kind.EndsRun()
}

const (
	readBatch = 256
	pageScan  = 20 * readBatch // most events that a page looks at before it ends short
)

func (s *Server) events(ctx context.Context, q eventQuery, p part) (any, error) {
	form, err := negotiate(q.Accept, typeJSON, typeSSE, typeNDJSON)
	if err != nil {
		return nil, err
	}
	if q.LastID != "" {
		if q.After, err = strconv.ParseInt(q.LastID, 10, 64); err != nil || q.After < 0 {
			return nil, agent.Errorf(agent.Invalid, "header Last-Event-ID must be the number of an event, not %.80q", q.LastID)
		}
	}
	q.After = max(q.After, p.first-1)
	if form == typeJSON {
		return s.eventPage(ctx, q, p)
	}
	out, encode := eventStream(form)
	if !q.Follow {
		log, err := s.reader(ctx, p, q.After)
		if err != nil {
			return nil, err
		}
		out.next, out.close, out.finish = kept(log, p, encode), log.close, true // half of it would look whole
		return out, nil
	}
	sub, err := s.subscribe(ctx, p, q.After)
	if err != nil {
		return nil, err
	}
	out.next, out.close = follow(sub, p, encode), sub.Close
	return out, nil
}

func (s *Server) subscribe(ctx context.Context, p part, after int64) (*runtime.Subscription, error) {
	if p.open != nil {
		return p.open(ctx, after)
	}
	if p.run != "" {
		return s.rt.SubscribeRun(ctx, appOf(ctx), p.run, after)
	}
	return s.rt.Subscribe(ctx, p.log, after)
}

// logReader reads what a log has now.
type logReader struct {
	next  func(context.Context) ([]runtime.Frame, error) // some events, in order; none at the end
	close func()
}

func (s *Server) reader(ctx context.Context, p part, after int64) (logReader, error) {
	if p.open != nil {
		return keptReader(ctx, p, after)
	}
	_, end, err := s.st.Bounds(ctx, p.log)
	return logReader{close: func() {}, next: func(ctx context.Context) ([]runtime.Frame, error) {
		if after >= end {
			return nil, nil
		}
		batch, err := s.st.Read(ctx, p.log, after, readBatch)
		if err != nil || len(batch) == 0 {
			return nil, err
		}
		after = batch[len(batch)-1].Seq
		out := make([]runtime.Frame, 0, len(batch))
		for _, e := range batch {
			if e.Seq <= end {
				out = append(out, runtime.Frame{Event: e})
			}
		}
		return out, nil
	}}, err
}

// keptReader reads through a subscription up to where its log ends now.
func keptReader(ctx context.Context, p part, after int64) (logReader, error) {
	sub, err := p.open(ctx, after)
	if err != nil {
		return logReader{}, err
	}
	end := sub.Tail()
	return logReader{close: sub.Close, next: func(ctx context.Context) ([]runtime.Frame, error) {
		if after >= end {
			return nil, nil
		}
		out, err := sub.Next(ctx)
		if err != nil {
			return nil, err
		}
		after = out[len(out)-1].Event.Seq
		return out, nil
	}}, nil
}

func (s *Server) eventPage(ctx context.Context, q eventQuery, p part) (list[agent.Event], error) {
	if q.Limit > agent.MaxPage {
		return list[agent.Event]{}, agent.Errorf(agent.Invalid, "limit must be from 1 to %d", agent.MaxPage)
	}
	limit := q.Limit
	if limit == 0 {
		limit = agent.DefaultPage
	}
	out := list[agent.Event]{Items: []agent.Event{}}
	log, err := s.reader(ctx, p, q.After)
	if err != nil {
		return out, err
	}
	defer log.close()
	for {
		batch, err := log.next(ctx)
		if err != nil || len(batch) == 0 {
			return out, err
		}
		for _, f := range batch {
			has, last := p.take(f.Event)
			if has {
				out.Items = append(out.Items, f.Event)
			}
			if last {
				return out, nil
			}
			if after := f.Event.Seq; len(out.Items) == limit || after-q.After >= pageScan {
				out.Next = strconv.FormatInt(after, 10)
				return out, nil
			}
		}
	}
}

type encoder func(b []byte, f runtime.Frame) []byte

// eventStream is a stream of events in SSE or NDJSON, whose next is still missing.
func eventStream(form string) (*stream, encoder) {
	if form == typeSSE {
		return &stream{contentType: form, first: []byte("retry: 1000\n\n"), beat: []byte(":\n\n"), close: func() {}}, appendSSE
	}
	return &stream{contentType: form, beat: []byte("\n"), close: func() {}}, appendNDJSON
}

// kept streams the events that are in the log now.
func kept(log logReader, p part, encode encoder) func(context.Context) ([]byte, error) {
	var buf []byte
	return func(ctx context.Context) ([]byte, error) {
		buf = buf[:0]
		for len(buf) == 0 {
			batch, err := log.next(ctx)
			if err != nil {
				return nil, err
			}
			if len(batch) == 0 {
				return nil, io.EOF
			}
			for _, f := range batch {
				if has, _ := p.take(f.Event); !has {
					continue
				}
				if f.JSON == nil {
					if f.JSON, err = encodeJSON(f.Event); err != nil {
						return nil, err
					}
				}
				buf = encode(buf, f)
			}
		}
		return buf, nil
	}
}

// follow streams what a subscription gets.
func follow(sub *runtime.Subscription, p part, encode encoder) func(context.Context) ([]byte, error) {
	var buf []byte
	return func(ctx context.Context) ([]byte, error) {
		frames, err := sub.Next(ctx)
		buf = buf[:0]
		for _, f := range frames {
			if has, _ := p.take(f.Event); has {
				buf = encode(buf, f)
			}
		}
		return buf, err
	}
}

func appendNDJSON(b []byte, f runtime.Frame) []byte {
	return append(append(b, f.JSON...), '\n')
}

// appendSSE writes an event as the HTML standard, section 9.2, says. The JSON has no line break. An event that is numbered in no log has no id.
func appendSSE(b []byte, f runtime.Frame) []byte {
	name := f.Event.Kind.String()
	if f.Event.Kind == agent.EventEmit && f.Event.Name != "" && !strings.ContainsAny(f.Event.Name, "\r\n\x00") {
		name = f.Event.Name
	}
	if f.Event.Seq != 0 {
		b = append(strconv.AppendInt(append(b, "id: "...), f.Event.Seq, 10), '\n')
	}
	b = append(append(b, "event: "...), name...)
	b = append(append(b, "\ndata: "...), f.JSON...)
	return append(b, '\n', '\n')
}
