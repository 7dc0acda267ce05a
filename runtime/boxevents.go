package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/store"
)

// boxState is the name of an EventCLI that tells of the sandbox itself; its data is an agent.Sandbox.
const boxState = "sandbox"

// boxTexts remembers how far sandboxes have told what they tell, by what the store knows each of them as.
type boxTexts struct {
	mu    sync.Mutex
	boxes map[string]*boxTold
}

// boxTold is what one generation of a sandbox has told. It is read from the store where the process does not know it.
type boxTold struct {
	mu    sync.Mutex
	used  time.Time
	known bool
	seen  int64            // number of its newest event that is stored
	run   agent.RunID      // whose log texts is of
	texts map[string]int64 // bytes that were told of texts that go on, by message and part
	user  agent.RunID      // who had the sandbox when bytes of events were stored, as far as this process knows
	bytes int64
}

// eventBytes is what an event counts besides its data.
const eventBytes = 256

// room returns what events count, or an Exhausted error with link.ErrTooMuch in its chain when the run that has the sandbox would have more than most.
func (t *boxTold) room(user agent.RunID, list []driver.Event, most int64) (weight int64, err error) {
	if t.user != user {
		t.user, t.bytes = user, 0
	}
	for i := range list {
		weight += int64(len(list[i].Data)) + eventBytes
	}
	if t.bytes+weight > most {
		return 0, &agent.Error{
			Kind: agent.Exhausted, Msg: fmt.Sprintf("it has told more than %d bytes in one run", most), Err: link.ErrTooMuch,
			Hint: "what writes so much can write into a file of the workspace",
		}
	}
	return weight, nil
}

// of returns what is known of a sandbox. Those that were silent for long are forgotten.
func (t *boxTexts) of(source string) *boxTold {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.boxes == nil {
		t.boxes = map[string]*boxTold{}
	}
	now := time.Now()
	told := t.boxes[source]
	if told == nil {
		for key, old := range t.boxes {
			if now.Sub(old.used) > time.Hour {
				delete(t.boxes, key)
			}
		}
		told = &boxTold{}
		t.boxes[source] = told
	}
	told.used = now
	return told
}

// BoxEvents writes events of a sandbox into the logs of the sessions whose runs they are of, each once, however often it comes. The first has number first.
// Each is one event there, so that the store knows by their number how far the driver has come. What is of no run that is there goes to the agent's log.
func (r *Runtime) BoxEvents(ctx context.Context, sb agent.Sandbox, first int64, list []driver.Event) error {
	told := r.boxes.texts.of(string(sb.App) + "/" + sb.Source())
	told.mu.Lock()
	defer told.mu.Unlock()
	if !told.known {
		var err error
		if told.seen, err = r.store.Taken(ctx, sb.App, sb.Source()); err != nil {
			return err
		}
		told.known, told.run = true, ""
	}
	if skip := told.seen + 1 - first; skip > 0 {
		list = list[min(skip, int64(len(list))):]
		first += skip
	}
	for len(list) > 0 {
		run, n := runOfEvent(sb, &list[0]), 1
		for n < len(list) && runOfEvent(sb, &list[n]) == run {
			n++
		}
		weight, err := told.room(sb.Run, list[:n], r.opts.BoxTold)
		if err != nil {
			return err
		}
		if err := r.boxEvents(ctx, told, sb, run, first, list[:n]); err != nil {
			return err
		}
		told.bytes += weight
		first, list = first+int64(n), list[n:]
	}
	return nil
}

// runOfEvent is the run that has begun the event's turn, or else the one that has the sandbox.
func runOfEvent(sb agent.Sandbox, e *driver.Event) agent.RunID {
	if run, ok := runOfTurn(e.Turn); ok {
		return run
	}
	return sb.Run
}

// boxEvents is BoxEvents for new events of one run. The caller holds the lock of told.
func (r *Runtime) boxEvents(ctx context.Context, told *boxTold, sb agent.Sandbox, id agent.RunID, first int64, list []driver.Event) error {
	run, log, err := r.logOfBox(ctx, sb, id)
	if err != nil {
		return err
	}
	if told.run != id || told.texts == nil {
		told.run, told.texts = id, map[string]int64{}
		if run.ID != "" && told.seen > 0 {
			if err := r.eachEventOf(ctx, run, 0, func(ev agent.Event) { told.recall(int(sb.Generation), ev) }); err != nil {
				told.texts = nil
				return err
			}
		}
	}
	next := teller{texts: told.texts, run: run.ID, attempt: int(sb.Generation)}
	for i := range list {
		next.tell(&list[i])
	}
	told.known, told.texts = false, nil // until it is known that it was written
	last, err := r.store.AppendOnce(ctx, log, sb.Source(), first, next.out)
	if err != nil {
		return err
	}
	told.known, told.seen, told.texts = true, last, next.texts
	r.feeds.look(ctx, log)
	return nil
}

// logOfBox returns the run, and the log that tells of it. A run that is not there, or is another agent's, is none.
func (r *Runtime) logOfBox(ctx context.Context, sb agent.Sandbox, id agent.RunID) (agent.Run, store.Log, error) {
	run, err := r.store.Run(ctx, sb.App, id)
	switch {
	case err == nil && run.Agent == sb.Agent:
		return run, store.SessionLog(run.App, run.Session), nil
	case err != nil && agent.KindOf(err) != agent.NotFound:
		return run, store.Log{}, err
	}
	a, err := r.store.Agent(ctx, sb.App, sb.Agent)
	return agent.Run{}, store.AgentLog(sb.App, a.ID), err
}

// recall takes in an event of a message that is in the log.
func (t *boxTold) recall(attempt int, ev agent.Event) {
	switch ev.Kind {
	case agent.EventMessageDelta:
		var d abi.MessageDelta
		if json.Unmarshal(ev.Data, &d) == nil && d.Attempt == attempt {
			t.texts[partOf(d.ID, d.Index)] = d.Offset + int64(len(d.Text))
		}
	case agent.EventMessageDone:
		var d abi.MessageDone
		if json.Unmarshal(ev.Data, &d) == nil && d.Attempt == attempt {
			forget(t.texts, d.ID)
		}
	}
}

// partOf names a part of a message.
func partOf(id string, index int) string { return id + "\x00" + strconv.Itoa(index) }

func forget(texts map[string]int64, id string) {
	for key := range texts {
		if strings.HasPrefix(key, id+"\x00") {
			delete(texts, key)
		}
	}
}

// teller makes events of a log of those of a driver, one of each.
type teller struct {
	texts   map[string]int64
	run     agent.RunID
	attempt int // the sandbox's generation: what a lost one has said of a turn that is begun again is void
	out     []agent.Event
}

// Parts of a message that is a CLI's.
const (
	saidPart = iota
	thoughtPart
)

func (t *teller) tell(e *driver.Event) {
	var text driver.TextData
	switch e.Type {
	case driver.TextDelta, driver.TextDone, driver.ReasoningDelta:
		if e.Read(&text) != nil {
			t.cli(e)
			return
		}
	}
	id := e.Turn + "/" + text.Item
	switch e.Type {
	case driver.TextDelta:
		t.say(e, id, saidPart, "text", text.Text)
	case driver.ReasoningDelta:
		t.say(e, id, thoughtPart, "reasoning", text.Text)
	case driver.TextDone:
		// A text that comes at once, or whose end was not told before, ends with what is told of it.
		if had := t.texts[partOf(id, saidPart)]; had < int64(len(text.Text)) {
			t.say(e, id, saidPart, "text", text.Text[had:])
			forget(t.texts, id)
			return
		}
		forget(t.texts, id)
		t.add(e, agent.EventMessageDone, "", encode(abi.MessageDone{ID: id, Attempt: t.attempt, Stop: "end"}))
	default:
		t.cli(e)
	}
}

// say tells the next piece of a message.
func (t *teller) say(e *driver.Event, id string, index int, kind, text string) {
	part := partOf(id, index)
	t.add(e, agent.EventMessageDelta, "", encode(abi.MessageDelta{ID: id, Attempt: t.attempt, Index: index, Type: kind, Offset: t.texts[part], Text: text}))
	t.texts[part] += int64(len(text))
}

// cli tells what is no text. Its data is an object, and says of which turn it is.
func (t *teller) cli(e *driver.Event) {
	stamp := encode(struct {
		Turn   string `json:"turn,omitempty"`
		Native string `json:"native,omitempty"`
		Cut    bool   `json:"cut,omitempty"`
	}{e.Turn, e.Native, e.Cut})
	t.add(e, agent.EventCLI, e.Type, merged(stamp, e.Data))
}

func (t *teller) add(e *driver.Event, kind agent.EventKind, name string, data json.RawMessage) {
	t.out = append(t.out, agent.Event{Kind: kind, Name: name, Run: t.run, Time: e.Time.UTC(), Data: data})
}

// merged is an object of ours with the members of another, which may be anything.
func merged(ours, more json.RawMessage) json.RawMessage {
	more = bytes.TrimSpace(more)
	switch {
	case len(more) < 2 || more[0] != '{' || !json.Valid(more) || len(bytes.TrimSpace(more[1:len(more)-1])) == 0:
		return ours
	case len(ours) == 2:
		return bytes.Clone(more)
	}
	return append(append(bytes.Clone(ours[:len(ours)-1]), ','), more[1:]...)
}

// BoxChanged tells the session of the run that has a sandbox what has become of it.
func (r *Runtime) BoxChanged(ctx context.Context, sb agent.Sandbox) {
	if sb.Run == "" || sb.Session == "" {
		return
	}
	ev := agent.Event{Kind: agent.EventCLI, Name: boxState, Run: sb.Run, Time: time.Now().UTC(), Data: encode(sb)}
	if err := r.append(ctx, store.SessionLog(sb.App, sb.Session), []agent.Event{ev}); err != nil && agent.KindOf(err) != agent.NotFound {
		r.log.WarnContext(ctx, "the session does not tell what has become of a sandbox", "sandbox", sb.ID, "state", sb.State, "error", fmt.Sprint(err))
	}
}

// toldOfBox reports whether something was told of the sandbox itself.
func toldOfBox(frames []Frame) bool {
	for _, f := range frames {
		if f.Event.Kind == agent.EventCLI && f.Event.Name == boxState {
			return true
		}
	}
	return false
}
