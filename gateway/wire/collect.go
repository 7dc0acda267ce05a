package wire

// Events returns a as a stream: what a decoder would have made of it, had it come in pieces.
func (a *Answer) Events() []Event {
	list := make([]Event, 0, 3*len(a.Parts)+2)
	list = append(list, Event{Kind: Begin, ID: a.ID, Model: a.Model, Created: a.Created, Usage: a.Usage, Tier: a.Tier})
	for i, p := range a.Parts {
		open := p
		open.Text = ""
		if p.Call != nil {
			c := *p.Call
			c.Args = ""
			open.Call = &c
		}
		if p.Kind != MediaPart && p.Kind != CallPart {
			open.Thought = nil
		}
		list = append(list, Event{Kind: PartBegin, Index: i, Part: open})
		text := p.Text
		if p.Call != nil {
			text = p.Call.Args
		}
		if text != "" {
			list = append(list, Event{Kind: PartDelta, Index: i, Text: text})
		}
		if p.Thought != nil && p.Kind != MediaPart {
			list = append(list, Event{Kind: PartOpaque, Index: i, Part: Part{Kind: p.Kind, Thought: p.Thought}})
		}
		list = append(list, Event{Kind: PartEnd, Index: i})
	}
	return append(list, Event{Kind: End, Stop: a.Stop, StopText: a.StopText, Usage: a.Usage, Tier: a.Tier})
}

// Collector makes an answer of the events of a stream. The zero value is ready.
type Collector struct {
	a    Answer
	text [][]byte
}

// Add takes the next event.
func (c *Collector) Add(e Event) {
	switch e.Kind {
	case Begin:
		c.a.ID, c.a.Model, c.a.Created, c.a.Usage = e.ID, e.Model, e.Created, e.Usage
	case PartBegin:
		for len(c.a.Parts) <= e.Index {
			c.a.Parts, c.text = append(c.a.Parts, Part{}), append(c.text, nil)
		}
		c.a.Parts[e.Index] = e.Part
		if e.Part.Call != nil {
			call := *e.Part.Call
			c.a.Parts[e.Index].Call = &call
		}
	case PartDelta:
		if e.Index < len(c.text) {
			c.text[e.Index] = append(c.text[e.Index], e.Text...)
		}
	case PartOpaque:
		if e.Index < len(c.a.Parts) {
			c.a.Parts[e.Index].Thought = e.Part.Thought
		}
	case Used:
		c.a.Usage = e.Usage
	case End:
		c.a.Stop, c.a.StopText = e.Stop, e.StopText
		if e.Usage.Known {
			c.a.Usage = e.Usage
		}
	}
	if e.Tier != "" {
		c.a.Tier = e.Tier
	}
}

// Answer returns what has come until now.
func (c *Collector) Answer() *Answer {
	a := c.a
	a.Parts = make([]Part, len(c.a.Parts))
	for i, p := range c.a.Parts {
		text := string(c.text[i])
		if p.Call != nil {
			call := *p.Call
			if call.Args += text; call.Args == "" && !call.Custom {
				call.Args = "{}"
			}
			p.Call = &call
		} else {
			p.Text += text
		}
		a.Parts[i] = p
	}
	return &a
}
