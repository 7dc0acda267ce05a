package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

const (
	logbookBytes   = 16 << 20 // bytes that may wait to be written
	logbookWriters = 8        // agents whose lines are written at once, so that the store can commit them together

	// What one agent may fill: a part of the room, and no more than fits in one commit.
	logbookAgentShare = 4 // a quarter of the lines
	logbookAgentLines = 4000
	logbookAgentBytes = 1 << 20

	// What one app's agents may write together in a round. An app that has more waits for the next, so that lines that are written as fast
	// as code can make them take neither the disk nor the processors from others.
	logbookRoundLines = 256
	logbookRoundBytes = 64 << 10
	logbookPause      = 20 * time.Millisecond // after a round in which an app had more
)

// logbook writes what stateless calls say to their agents' logs, later and many lines to a commit. Adding never waits: what
// finds no room is dropped and counted, and a line in the agent's log tells how much.
type logbook struct {
	maxLines int
	write    func(ctx context.Context, a logAddress, events []agent.Event) error
	ready    chan struct{} // has room for one

	mu      sync.Mutex
	pages   map[logAddress]*page
	lines   int
	bytes   int
	dropped int64
}

type logAddress struct {
	app agent.App
	id  agent.AgentID
}

type page struct {
	events  []agent.Event
	bytes   int
	dropped int
}

func newLogbook(maxLines int, write func(context.Context, logAddress, []agent.Event) error) *logbook {
	return &logbook{maxLines: maxLines, write: write, ready: make(chan struct{}, 1), pages: make(map[logAddress]*page)}
}

func (b *logbook) sinks(a *agent.Agent) sinks {
	to := logAddress{a.App, a.ID}
	return sinks{
		line: func(_ context.Context, line agent.LogLine) error {
			b.add(to, agent.Event{Kind: agent.EventLog, Data: encode(line)})
			return nil
		},
		emit: func(_ context.Context, name string, data json.RawMessage) error {
			b.add(to, agent.Event{Kind: agent.EventEmit, Name: name, Data: data})
			return nil
		},
		event: func(_ context.Context, ev agent.Event) { b.add(to, ev) },
	}
}

// failure adds an error that an agent's code did not catch.
func (b *logbook) failure(a *agent.Agent, e *agent.Error) {
	msg := phrase.Clip(e.Msg, maxMessage)
	if p := e.Pos.String(); p != "" {
		msg = phrase.Clip(p, maxName) + ": " + msg
	}
	if e.Stack != "" {
		msg += "\n" + phrase.Clip(e.Stack, maxStack)
	}
	b.add(logAddress{a.App, a.ID}, agent.Event{Kind: agent.EventLog, Data: encode(agent.LogLine{Level: agent.LevelError, Message: msg})})
}

func (b *logbook) add(to logAddress, ev agent.Event) {
	ev.Time = time.Now().UTC()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[to]
	if p == nil {
		p = &page{}
		b.pages[to] = p
	}
	if b.hasRoom(p) {
		if p.dropped > 0 {
			b.put(p, p.note())
		}
		b.put(p, ev)
	} else {
		p.dropped++
		b.dropped++
	}
	b.wake()
}

func (b *logbook) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// put adds to a page. The caller holds the lock.
func (b *logbook) put(p *page, ev agent.Event) {
	p.events = append(p.events, ev)
	p.bytes += len(ev.Data)
	b.lines++
	b.bytes += len(ev.Data)
}

func (b *logbook) hasRoom(p *page) bool {
	most := min(max(1, b.maxLines/logbookAgentShare), logbookAgentLines)
	return b.lines < b.maxLines && b.bytes < logbookBytes && len(p.events) < most && p.bytes < logbookAgentBytes
}

// run writes until stop is closed, then writes the rest.
func (b *logbook) run(ctx context.Context, stop <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	for {
		select {
		case <-b.ready:
		case <-stop:
			for b.flush(ctx) {
			}
			return
		}
		if b.flush(ctx) {
			b.wake()
			select {
			case <-time.After(logbookPause):
			case <-stop:
			}
		}
	}
}

// flush writes a round, and reports whether there was more.
func (b *logbook) flush(ctx context.Context) (more bool) {
	pages, more := b.take()
	slots := make(chan struct{}, logbookWriters)
	var wg sync.WaitGroup
	for to, events := range pages {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, commitTimeout)
			defer cancel()
			if b.write(ctx, to, events) != nil {
				b.mu.Lock()
				b.dropped += int64(len(events))
				b.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return more
}

// take takes what is written in a round, and reports whether there is more.
func (b *logbook) take() (pages map[logAddress][]agent.Event, more bool) {
	type part struct{ lines, bytes int }
	had := map[agent.App]part{}
	pages = map[logAddress][]agent.Event{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for to, p := range b.pages {
		app := had[to.app]
		n, size := 0, 0
		for n < len(p.events) && app.lines < logbookRoundLines && app.bytes < logbookRoundBytes {
			size += len(p.events[n].Data)
			app.bytes += len(p.events[n].Data)
			app.lines++
			n++
		}
		had[to.app] = app
		if n > 0 {
			pages[to] = p.events[:n:n]
		}
		p.events, p.bytes = p.events[n:], p.bytes-size
		b.lines, b.bytes = b.lines-n, b.bytes-size
		if len(p.events) > 0 {
			more = true
			continue
		}
		if p.dropped > 0 {
			pages[to] = append(pages[to], p.note())
		}
		delete(b.pages, to)
	}
	return pages, more
}

// note tells how many lines were dropped since the last note.
func (p *page) note() agent.Event {
	line := agent.LogLine{
		Level:   agent.LevelWarn,
		Message: fmt.Sprintf("%d lines dropped: they came faster than they could be written", p.dropped),
	}
	p.dropped = 0
	return agent.Event{Kind: agent.EventLog, Time: time.Now().UTC(), Data: encode(line)}
}

func (b *logbook) droppedLines() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
