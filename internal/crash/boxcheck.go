package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// checkBoxes holds what logs tell against what runs were to do, and what there is of boxes against what the server says of them.
func (r *boxRound) checkBoxes(ctx context.Context, p *person) error {
	if len(r.wrong) > 0 { // jobs that did not end have not been checked
		return nil
	}
	of := map[agent.RunID]*job{}
	sessions := map[agent.SessionID]bool{}
	for _, j := range r.jobs {
		of[j.run.ID], sessions[j.run.Session] = j, true
	}
	for s := range sessions {
		if err := r.ofSession(ctx, s, of); err != nil {
			return err
		}
	}
	open, err := p.open(ctx)
	if err != nil {
		return err
	}
	for _, a := range open {
		r.fail("approval %s is open when all runs have ended", a.ID)
	}
	if r.server.kill() {
		return fmt.Errorf("the server ended by itself: %.2000s", r.server.stderr.Bytes())
	}
	if err := r.server.start(ctx); err != nil {
		return err
	}
	if err := r.until(ctx, "pets' boxes alone are left", r.strays); err != nil || len(r.wrong) > 0 {
		return err
	}
	list, err := r.cl.Sandboxes(ctx, "", agent.Page{})
	if err != nil {
		return err
	}
	for _, sb := range list.Items {
		if err := r.cl.DeleteSandbox(ctx, sb.ID); err != nil && agent.KindOf(err) != agent.NotFound {
			return err
		}
	}
	return r.until(ctx, "nothing is left", r.leftOver)
}

// until waits until left says that nothing is.
func (r *boxRound) until(ctx context.Context, what string, left func(context.Context) (string, error)) error {
	began := time.Now()
	for late := began.Add(patience); ; {
		why, err := left(ctx)
		if err != nil || why == "" {
			r.tally["slowest until "+what+", ms"] = int(time.Since(began).Milliseconds())
			return err
		}
		if time.Now().After(late) {
			r.fail("after %v it is not so that %s: %s; the server says %.4000s", patience, what, why, r.server.stderr.Bytes())
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// strays tells what containers and volumes are there that records do not tell of, and the other way round, and which records should not be.
func (r *boxRound) strays(ctx context.Context) (string, error) {
	there, err := containers(ctx, r.owner) // before the records: a record is stored before its box is made, and goes after it
	if err != nil {
		return "", err
	}
	list, err := r.cl.Sandboxes(ctx, "", agent.Page{})
	if err != nil {
		return "", err
	}
	boxes := map[agent.SandboxID]int{}
	for _, c := range there {
		boxes[c.sandbox]++
		if c.state != "running" {
			return fmt.Sprintf("a container of sandbox %s is %s", c.sandbox, c.state), nil
		}
	}
	for _, sb := range list.Items {
		want := 0
		switch {
		case sb.Keep != agent.Pet:
			return fmt.Sprintf("sandbox %s of run %s is %s", sb.ID, sb.Run, sb.State), nil
		case sb.State == agent.SandboxReady:
			want = 1
		case sb.State != agent.SandboxStopped && sb.State != agent.SandboxLost && sb.State != agent.SandboxFailed:
			return fmt.Sprintf("sandbox %s is %s", sb.ID, sb.State), nil
		}
		if boxes[sb.ID] != want {
			return fmt.Sprintf("sandbox %s is %s and has %d containers", sb.ID, sb.State, boxes[sb.ID]), nil
		}
		delete(boxes, sb.ID)
	}
	if len(boxes) > 0 {
		return fmt.Sprintf("there are containers of sandboxes that are not: %v", boxes), nil
	}
	names, err := volumes(ctx, r.owner)
	if len(list.Items) == 0 && len(names) > 0 {
		return fmt.Sprintf("there are the volumes %v, and no pet", names), err
	}
	return "", err
}

// leftOver tells what is left when all sandboxes were deleted.
func (r *boxRound) leftOver(ctx context.Context) (string, error) {
	if why, err := r.strays(ctx); why != "" || err != nil {
		return why, err
	}
	list, err := r.cl.Sandboxes(ctx, "", agent.Page{})
	if err == nil && len(list.Items) > 0 {
		return fmt.Sprintf("sandbox %s is %s", list.Items[0].ID, list.Items[0].State), nil
	}
	if err != nil {
		return "", err
	}
	folders, err := os.ReadDir(r.sockets)
	folders = slices.DeleteFunc(folders, func(e os.DirEntry) bool { return !e.IsDir() })
	if len(folders) > 0 {
		return fmt.Sprintf("there is the folder %s of a socket", folders[0].Name()), err
	}
	return "", err
}

// ofSession checks that a log has no gap, and what it tells of each run.
func (r *boxRound) ofSession(ctx context.Context, id agent.SessionID, of map[agent.RunID]*job) error {
	runs, last := map[agent.RunID]*ran{}, int64(0)
	for e, err := range r.cl.Events(ctx, client.SessionLog(id), 0, false) {
		if err != nil {
			return err
		}
		if e.Seq != last+1 {
			r.fail("session %s: event %d follows %d", id, e.Seq, last)
		}
		last = e.Seq
		j := of[e.Run]
		if j == nil {
			r.fail("session %s: event %d, %s %s, is of run %q, which nobody has started", id, e.Seq, e.Kind, e.Name, e.Run)
			continue
		}
		if runs[e.Run] == nil {
			runs[e.Run] = newRan(j)
		}
		r.tally["events"]++
		if err := runs[e.Run].event(e); err != nil {
			r.fail("job %s, run %s: event %d, %s %s %s: %v", j.Name, e.Run, e.Seq, e.Kind, e.Name, e.Data, err)
		}
	}
	for _, j := range of {
		if j.run.Session == id {
			t := runs[j.run.ID]
			if t == nil {
				t = newRan(j)
			}
			r.ofJob(j, t)
		}
	}
	return nil
}

// ofJob checks how a run ended, and that its log tells of all of it.
func (r *boxRound) ofJob(j *job, t *ran) {
	r.tally["runs "+j.run.Status.String()]++
	r.tally["pieces and tools"] += t.numbered
	r.tally["turns that were begun again"] += max(0, len(t.turns)-1)
	for id, answers := range t.asked {
		if answers > 1 || answers == 0 && j.run.Status == agent.Completed {
			r.fail("job %s, run %s: approval %s was answered %d times", j.Name, j.run.ID, id, answers)
		}
	}
	r.tally["approvals"] += len(t.asked)
	if t.ends != 1 {
		r.fail("job %s, run %s: its log has %d ends", j.Name, j.run.ID, t.ends)
	}
	if j.run.Status == agent.Completed {
		if err := t.whole(); err != nil {
			r.fail("job %s, run %s, has completed: %v; plan %+v", j.Name, j.run.ID, err, j.plan)
		}
		return
	}
	e := j.run.Error
	switch {
	case e == nil || e.Kind == agent.Internal || e.Msg == "":
		r.fail("job %s, run %s, is %s for no reason: %+v", j.Name, j.run.ID, j.run.Status, e)
	case strings.HasPrefix(e.Msg, lostTwice):
		r.tally["runs lost twice in a row"]++
	case !strings.Contains(e.Msg, "sandbox"):
		r.fail("job %s, run %s, is %s for another reason than that its box was killed: %+v", j.Name, j.run.ID, j.run.Status, e)
	case !r.wasStruck(j, t):
		r.fail("job %s, run %s, is %s, and nobody has killed its box: %+v", j.Name, j.run.ID, j.run.Status, e)
	default:
		said, _, _ := strings.Cut(ids.ReplaceAllString(e.Msg, "ID"), ": {") // what the driver wrote
		r.tally[fmt.Sprintf("failed (%s): %s", e.Kind, said)]++
	}
}

// ids are what differs in messages that are alike.
var ids = regexp.MustCompile(`\b[0-9A-Za-z]{26}\b|[0-9a-f]{12,}`)

// wasStruck tells whether a box of a run was killed while the run was there.
func (r *boxRound) wasStruck(j *job, t *ran) bool {
	for id := range t.boxes {
		for _, at := range r.struck[id] {
			if !at.Before(j.run.Created.Add(-time.Second)) && !at.After(j.run.Ended) {
				return true
			}
		}
	}
	return false
}

// ran is what a log has told of a run so far.
type ran struct {
	*job
	boxes    map[agent.SandboxID]bool
	turns    []string       // names that boxagent gave them
	next     map[string]int // the number that comes next, by turn
	open     map[string]bool
	closed   map[string]bool // tools by their ids: whether they did what they were to
	permits  map[string]bool
	asked    map[agent.ApprovalID]int // how often it was answered
	half     string                   // of a piece of text
	ended    []string                 // statuses of turns
	numbered int
	ends     int
}

func newRan(j *job) *ran {
	return &ran{
		job: j, boxes: map[agent.SandboxID]bool{}, next: map[string]int{}, open: map[string]bool{}, closed: map[string]bool{}, permits: map[string]bool{},
		asked: map[agent.ApprovalID]int{},
	}
}

func (t *ran) event(e agent.Event) error {
	if t.ends > 0 && e.Kind != agent.EventCLI && e.Kind != agent.EventMessageDelta && e.Kind != agent.EventMessageDone {
		return fmt.Errorf("it follows the end")
	}
	switch e.Kind {
	case agent.EventRunCompleted, agent.EventRunFailed, agent.EventRunCancelled:
		t.ends++
	case agent.EventMessageDelta:
		var d struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return err
		}
		return t.text(d.Text)
	case agent.EventApprovalRequested:
		var a agent.Approval
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		if _, twice := t.asked[a.ID]; twice {
			return fmt.Errorf("it was asked before")
		}
		t.asked[a.ID] = 0
	case agent.EventApprovalAnswered:
		var a agent.ApprovalAnswered
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		if _, there := t.asked[a.ID]; !there {
			return fmt.Errorf("it was not asked")
		}
		t.asked[a.ID]++
	case agent.EventCLI:
		return t.cli(e)
	}
	return nil
}

// text takes a part of a text, which is pieces such as [0-1-2-abcdef.17].
func (t *ran) text(part string) error {
	t.half += part
	for t.half != "" {
		piece, rest, whole := strings.Cut(t.half, "]")
		if !whole {
			return nil
		}
		at := strings.LastIndexByte(piece, '[')
		if at < 0 || at > 0 && !strings.HasSuffix(piece, ".0") { // a turn that is begun again may follow half a piece of the one that was lost
			return fmt.Errorf("the piece %q is none", piece)
		}
		id := piece[at+1:]
		t.half = rest
		if err := t.number(id); err != nil {
			return err
		}
	}
	return nil
}

// number takes the next of what is numbered.
func (t *ran) number(id string) error {
	turn, number, _ := strings.Cut(id, ".")
	n, err := strconv.Atoi(number)
	if err != nil || !strings.HasPrefix(turn, t.Name+"-") {
		return fmt.Errorf("%q is none of this run", id)
	}
	if t.next[turn] == 0 && !slices.Contains(t.turns, turn) {
		t.turns = append(t.turns, turn)
	}
	if turn != t.turns[len(t.turns)-1] {
		return fmt.Errorf("%s comes after the turn %s has begun", id, t.turns[len(t.turns)-1])
	}
	if n != t.next[turn] {
		return fmt.Errorf("%s where %d should be", id, t.next[turn])
	}
	t.next[turn]++
	t.numbered++
	return nil
}

func (t *ran) cli(e agent.Event) error {
	var d struct {
		ID     string `json:"id"`
		Failed bool   `json:"failed"`
		Status string `json:"status"`
		Raw    string `json:"raw"`
	}
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return err
	}
	switch e.Name {
	case "sandbox":
		t.boxes[agent.SandboxID(d.ID)] = true
	case "tool.started":
		if t.half != "" && !strings.HasSuffix(d.ID, ".0") {
			return fmt.Errorf("a piece of text before it is not whole: %q", t.half)
		}
		t.half = ""
		t.open[d.ID] = true
		return t.number(d.ID)
	case "tool.ended":
		_, again := t.closed[d.ID]
		if !t.open[d.ID] || again {
			return fmt.Errorf("it has begun: %v, and has ended before: %v", t.open[d.ID], again)
		}
		t.closed[d.ID] = !d.Failed
	case "permission.asked":
		if t.permits[d.ID] {
			return fmt.Errorf("it was asked before")
		}
		t.permits[d.ID] = true
	case "turn.ended":
		t.ended = append(t.ended, d.Status)
	case "agent.unparsed":
		return fmt.Errorf("the driver did not understand it")
	}
	return nil
}

// whole checks what a run tells that has completed: its last turn is whole, and what was to be changed is changed, and nothing else.
func (t *ran) whole() error {
	if len(t.turns) == 0 || len(t.turns) > 1 && !t.pet {
		return fmt.Errorf("it has the turns %v", t.turns)
	}
	if len(t.ended) == 0 || t.ended[len(t.ended)-1] != "completed" {
		return fmt.Errorf("its turns have ended: %v", t.ended)
	}
	turn := t.turns[len(t.turns)-1]
	n, edits := 0, map[string]bool{}
	for _, st := range t.Steps {
		if n += st.Say; st.Say > 0 {
			continue
		}
		id := fmt.Sprintf("%s.%d", turn, n)
		did, over := t.closed[id]
		if n++; !over || did != (st.Look || allowed(st.Edit)) {
			return fmt.Errorf("the tool %s has ended: %v, and has done it: %v", id, over, did)
		}
		if st.Edit != "" {
			edits[st.Edit] = allowed(st.Edit)
		}
	}
	if t.next[turn] != n {
		return fmt.Errorf("it has told of %d of %d", t.next[turn], n)
	}
	var out struct {
		Changed []struct {
			Path  string `json:"path"`
			Added int    `json:"added"`
		} `json:"changed"`
	}
	if t.run.Output == nil || json.Unmarshal(t.run.Output.Body, &out) != nil {
		return fmt.Errorf("its output is %+v", t.run.Output)
	}
	lines := map[string]int{}
	for _, c := range out.Changed {
		lines[c.Path] = c.Added
		if may, known := edits[c.Path]; known && !may || !known && !t.pet || strings.HasPrefix(c.Path, "no") || strings.HasPrefix(c.Path, "never") {
			return fmt.Errorf("%s was changed", c.Path)
		}
	}
	for file, may := range edits {
		if most := len(t.turns); may && (lines[file] < 1 || lines[file] > most) {
			return fmt.Errorf("%s has %d new lines, of at most %d", file, lines[file], most)
		}
	}
	return nil
}
