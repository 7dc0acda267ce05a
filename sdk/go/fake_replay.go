//go:build !wasip1

package skep

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// journal is what a call asked of its host and what it got back, in order.
type journal struct {
	input, output []byte
	failed        string
	began         time.Time
	entries       []journalEntry

	replaying bool
	next      int
	diverged  error // the first difference
}

type journalEntry struct {
	name       string
	in, answer []byte
	now        time.Time // when the answer came
}

// Replay plays the last Call again from its beginning, with its answers from a journal, as Skep does with a run that has waited or was
// interrupted. It fails when the code does not ask the same again in the same order, or does not come to the same end: such code
// depends on something else than its input and its host, such as the order of a map.
func (f *Fake) Replay(function func() int32) error {
	currentMu.Lock()
	defer currentMu.Unlock()
	now, logs, output, failed := f.Now, len(f.Logs), f.Output, f.Failed
	f.begin(f.journal.input)
	f.Now = f.journal.began
	j := &f.journal
	j.replaying, j.next, j.diverged = true, 0, nil
	_ = f.enter(function) // what it came to is compared below
	j.replaying = false
	switch {
	case j.diverged != nil:
	case j.next < len(j.entries):
		j.diverged = fmt.Errorf("the run diverges: it ended after %d calls, where it made %s", j.next, j.entries[j.next])
	case !bytes.Equal(f.Output, j.output) || f.Failed != j.failed:
		j.diverged = fmt.Errorf("the run diverges: it came to %q (%s), where it was %q (%s)", f.Output, f.Failed, j.output, j.failed)
	}
	f.Now, f.Logs, f.Output, f.Failed = now, slices.Clip(f.Logs[:logs]), output, failed
	return j.diverged
}

func (e journalEntry) String() string { return fmt.Sprintf("%s %.200s", e.name, e.in) }

// journaled answers a call by doing it, or from the journal.
func (f *Fake) journaled(name string, in []byte, do func() []byte) []byte {
	j := &f.journal
	if !j.replaying {
		answer := do()
		j.entries = append(j.entries, journalEntry{name, bytes.Clone(in), bytes.Clone(answer), f.Now})
		return answer
	}
	asked := journalEntry{name: name, in: in}
	switch {
	case j.diverged != nil:
	case j.next == len(j.entries):
		j.diverged = fmt.Errorf("the run diverges: call %d is %s, where it had ended", j.next+1, asked)
	case j.entries[j.next].name != name || !bytes.Equal(j.entries[j.next].in, in):
		j.diverged = fmt.Errorf("the run diverges: call %d is %s, where it was %s", j.next+1, asked, j.entries[j.next])
	default:
		e := j.entries[j.next]
		j.next++
		f.Now = e.now
		return bytes.Clone(e.answer)
	}
	status, body := refuse("conflict", j.diverged.Error())
	return append([]byte{byte(status)}, body...)
}
