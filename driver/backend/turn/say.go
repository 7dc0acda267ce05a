package turn

import (
	"slices"
	"strings"

	"github.com/skep-dev/skep/driver"
)

// piece is the most bytes of a text.delta.
const piece = 8 << 10

// maxText is the most bytes of a text that are kept for its end. It is more than an event can have, so that what is more is cut, and says so.
const maxText = 4 * driver.MaxEvent

// maxTools is the most tool calls of a turn that are remembered.
const maxTools = 10_000

// Say tells a piece of a text. Another item than before ends the text before.
func (b *Book) Say(item, native, text string) {
	if text == "" {
		return
	}
	b.mu.Lock()
	other := b.item != "" && b.item != item
	b.mu.Unlock()
	if other {
		b.Pause()
	}
	b.mu.Lock()
	b.item, b.native = item, native
	if b.text.Len() < maxText {
		b.text.WriteString(text)
	}
	b.mu.Unlock()
	for len(text) > 0 {
		n := len(driver.CutText(text, piece))
		b.Tell(driver.TextDelta, native, driver.TextData{Item: item, Text: text[:n]})
		text = text[n:]
	}
}

// Pause ends the text that is being said, if one is.
func (b *Book) Pause() {
	b.mu.Lock()
	item, native, text := b.item, b.native, b.text.String()
	b.item = ""
	b.text.Reset()
	if item != "" {
		b.last = text
	}
	b.mu.Unlock()
	if item != "" {
		b.Tell(driver.TextDone, native, driver.TextData{Item: item, Text: text})
	}
}

// Said ends a text that the agent has told as a whole.
func (b *Book) Said(item, native, text string) {
	b.mu.Lock()
	same := b.item == item
	b.mu.Unlock()
	if same {
		b.Pause()
		return
	}
	if text == "" {
		return
	}
	b.mu.Lock()
	b.last = text
	b.mu.Unlock()
	b.Tell(driver.TextDone, native, driver.TextData{Item: item, Text: text})
}

// Tool tells that a tool is called. A call that was told is told once; one without an id cannot be told apart, and is not told.
func (b *Book) Tool(d driver.ToolData) {
	if d.ID == "" {
		return
	}
	b.mu.Lock()
	_, open := b.tools[d.ID]
	again := open || b.finished[d.ID]
	if !again && len(b.tools) < maxTools {
		b.tools[d.ID] = d
	}
	b.mu.Unlock()
	if again {
		return
	}
	b.Pause()
	b.Tell(driver.ToolStarted, d.ID, d)
}

// ToolOutput tells what a tool writes.
func (b *Book) ToolOutput(id, text string) {
	for len(text) > 0 {
		n := len(driver.CutText(text, piece))
		b.Tell(driver.ToolOutput, id, driver.TextData{Item: id, Text: text[:n]})
		text = text[n:]
	}
}

// ToolDone tells that a call has ended. Of one that nobody knew of the beginning is told, too; of one that has ended, nothing.
func (b *Book) ToolDone(d driver.ToolData) {
	if d.ID == "" {
		return
	}
	start := d
	start.Failed, start.Output = false, ""
	b.Tool(start)
	d.Input = nil
	b.mu.Lock()
	again := b.finished[d.ID]
	delete(b.tools, d.ID)
	if !again && len(b.finished) < maxTools {
		b.finished[d.ID] = true
	}
	b.mu.Unlock()
	if !again {
		b.Tell(driver.ToolEnded, d.ID, d)
	}
}

// closeTools ends the calls that are open when the turn ends.
func (b *Book) closeTools() {
	b.mu.Lock()
	open := make([]driver.ToolData, 0, len(b.tools))
	for _, d := range b.tools {
		open = append(open, d)
	}
	b.mu.Unlock()
	slices.SortFunc(open, func(a, c driver.ToolData) int { return strings.Compare(a.ID, c.ID) })
	for _, d := range open {
		d.Failed = true
		b.ToolDone(d)
	}
}

// Saying reports whether the text that is being said is the agent's native.
func (b *Book) Saying(native string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.item != "" && b.native == native
}
