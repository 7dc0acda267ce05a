// Package turn keeps what an agent that speaks JSON-RPC says and does in a turn: its texts and its tools, each with its beginning and its end. The state of
// the session beside, that of the turn and of what is asked, is package stdio's.
package turn

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend/stdio"
)

// Book is that of a session. Say, Said, Pause, the methods of tools and Finish are for the one goroutine that reads what the agent says; the others may be
// called at once.
type Book struct {
	*stdio.Session
	nonce string // of ids of what is asked: an answer to what was asked by a process before fits nothing

	mu       sync.Mutex
	cut      bool // somebody has asked to interrupt the turn
	asked    int64
	item     string          // text that is being said
	native   string          // the agent's id of it
	text     strings.Builder // of item
	last     string          // the newest whole text of the turn
	tools    map[string]driver.ToolData
	finished map[string]bool // tools of the turn that have ended
}

// New returns the book of a session of the CLI that is called title.
func New(title string, sink func(driver.Event)) *Book {
	return &Book{Session: stdio.NewSession(title, sink), nonce: rand.Text()[:10], tools: map[string]driver.ToolData{}, finished: map[string]bool{}}
}

// Begin begins a turn, while none is under way.
func (b *Book) Begin(turn string) error {
	if err := b.Session.Begin(turn); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut, b.last = false, ""
	clear(b.finished)
	return nil
}

// Cut notes that the turn is to be interrupted, and reports whether there is one. A session that is dead is an Unavailable error.
func (b *Book) Cut() (bool, error) {
	if err := b.Gone(); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = b.Turn() != ""
	return b.cut, nil
}

// WasCut reports whether the turn was to be interrupted.
func (b *Book) WasCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cut
}

// NewID returns an id for what is asked.
func (b *Book) NewID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.nonce + "-" + strconv.FormatInt(b.asked, 10)
}

// Unparsed tells what is not understood, and why.
func (b *Book) Unparsed(raw []byte, why string) {
	b.Tell(driver.Unparsed, "", stdio.Unparsed([]byte(why+": "+string(raw[:min(len(raw), maxText)]))))
}

// Log tells an operator something.
func (b *Book) Log(text string) {
	b.Tell(driver.DriverLog, "", driver.TextData{Text: driver.CutText(text, 4<<10)})
}

// Finish ends the turn, if there is one: what is open is closed first. The text is the newest one that was said unless end has one.
func (b *Book) Finish(end driver.TurnEnd) {
	b.Pause()
	b.closeTools()
	b.mu.Lock()
	if end.Text == "" {
		end.Text = b.last
	}
	b.cut, b.last = false, ""
	b.mu.Unlock()
	b.Session.Finish(end)
}

// End ends the session, after the agent's program has ended: a turn fails, unless it was to be interrupted.
func (b *Book) End(how driver.ProcessData) {
	if b.WasCut() && !how.OOM {
		b.Finish(driver.TurnEnd{Status: driver.TurnInterrupted, Reason: "process_ended"})
	}
	b.Pause()
	b.closeTools()
	b.Session.End(how)
}

// Fail ends the turn with an error.
func (b *Book) Fail(reason string, err error) {
	if agent.KindOf(err) == agent.Unavailable && b.Gone() != nil {
		return // the end of the program tells
	}
	b.Finish(driver.TurnEnd{Status: driver.TurnFailed, Reason: reason, Fault: driver.FaultOf(err)})
}
