package scrub

// matcher runs the spellings of a Scrubber, all at once and from every place, over one text that comes in pieces. It is a
// nondeterministic automaton: a state is a place in forms. An escape of several bytes leads to a state some bytes ahead, so
// the states wait in slots, by the place in the text where they go on.
//
// Offsets count from the beginning of the whole text.
type matcher struct {
	s       *Scrubber
	slots   [slots][]entry
	waiting int    // entries in all slots
	spans   []span // what was found, in order and apart
	rs      []reading
}

const slots = 32 // a power of two above maxEscape

// entry says that the text from an offset to here spells what stands in forms before a place.
type entry struct {
	at     int32
	breaks int32 // line breaks since the last digit of base64, at most maxBreaks
	from   int
}

// maxBreaks is how many line breaks in a row base64 may have, a "\r\n" being two. More, and it would have no longest spelling.
const maxBreaks = 2

type span struct{ from, to int }

// scan reads t, of which the first byte has the offset base, from the offset i on. It returns the offset it came to: the end,
// unless t ends within an escape and more may come, for then final is false.
func (m *matcher) scan(t []byte, base, i int, final bool) int {
	for i -= base; i < len(t); i++ {
		if m.waiting == 0 {
			if i = m.s.skip(t, i); i == len(t) {
				break
			}
		}
		c, rs := t[i], m.rs[:0]
		if isIntro(c) {
			var more bool
			if rs, more = readings(rs, t[i:]); more && !final {
				return base + i
			}
			m.rs = rs
		}
		slot := &m.slots[(base+i)%slots]
		states := *slot
		begins := m.s.begins(t, i)
		m.read(states, t[i:], base+i, &reading{1, 1, [4]byte{c}}, begins)
		for k := range rs {
			m.read(states, t[i:], base+i, &rs[k], begins)
		}
		if len(*slot) > 0 { // not flooded
			m.waiting -= len(states)
			*slot = states[:0]
		}
	}
	return base + i
}

// read follows one reading of the text t at an offset, from each of the states there, and from the beginning of each spelling.
func (m *matcher) read(states []entry, t []byte, offset int, r *reading, begins bool) {
	to := offset + r.size
	before := len(m.slots[to%slots])
	for _, e := range states {
		m.follow(e, r, to, before)
	}
	if begins {
		for _, at := range m.s.first[r.b[0]] {
			if m.s.goesOn(at+int32(r.n), t[r.size:]) {
				m.follow(entry{at: at, from: offset}, r, to, before)
			}
		}
	}
	m.wrap(states, offset, r)
}

func (m *matcher) follow(e entry, r *reading, to, before int) {
	forms := m.s.forms[e.at:]
	for i, c := range r.b[:r.n] {
		if forms[i] == formEnd || !forms[i].is(c) {
			return
		}
	}
	e.at, e.breaks = e.at+int32(r.n), 0
	if forms[r.n] == formEnd {
		m.found(e.from, to)
		return
	}
	m.put(e, to, before)
}

// put adds a state unless it is among the first entries of its slot, in which case the earlier beginning counts.
func (m *matcher) put(e entry, to, before int) {
	slot := &m.slots[to%slots]
	for i := range min(before, len(*slot)) {
		if old := &(*slot)[i]; old.at == e.at && old.breaks == e.breaks {
			old.from = min(old.from, e.from)
			return
		}
	}
	if len(*slot) >= m.s.most {
		m.flood(to)
		return
	}
	*slot = append(*slot, e)
	m.waiting++
}

// flood gives up telling apart the many beginnings of a value that repeats itself, such as one letter a thousand times, in a
// text that does so too: all that may be one is taken out, so that the work for each byte stays bounded.
func (m *matcher) flood(to int) {
	m.found(m.hold(to), to)
	for i := range m.slots {
		m.slots[i] = m.slots[i][:0]
	}
	m.waiting = 0
}

// wrap lets base64 go on after a line break.
func (m *matcher) wrap(states []entry, offset int, r *reading) {
	if r.n != 1 || r.b[0] != '\n' && r.b[0] != '\r' {
		return
	}
	to := offset + r.size
	before := len(m.slots[to%slots])
	for _, e := range states {
		if e.breaks < maxBreaks && m.s.forms[e.at]&^0xff == anySixty {
			e.breaks++
			m.put(e, to, before)
		}
	}
}

// found notes that the text between two offsets is a value. Spans that overlap become one.
func (m *matcher) found(from, to int) {
	n := len(m.spans)
	for ; n > 0 && m.spans[n-1].to > from; n-- {
		from, to = min(from, m.spans[n-1].from), max(to, m.spans[n-1].to)
	}
	m.spans = append(m.spans[:n], span{from, to})
}

// hold returns the first offset, up to one, from where the text may yet turn out to be a value.
func (m *matcher) hold(offset int) int {
	if m.waiting == 0 {
		return offset
	}
	for i := range m.slots {
		for _, e := range m.slots[i] {
			offset = min(offset, e.from)
		}
	}
	return offset
}

// flush appends to out what t holds, scrubbed, as far as nothing before the offset end can change any more. It returns the
// offset up to which t was used.
func (m *matcher) flush(out, t []byte, base, end int) ([]byte, int) {
	done, i := 0, base
	for _, s := range m.spans {
		if s.to > end {
			end = min(end, s.from)
			break
		}
		out = append(append(out, t[i-base:s.from-base]...), Mark...)
		i = s.to
		done++
	}
	m.spans = append(m.spans[:0], m.spans[done:]...)
	return append(out, t[i-base:end-base]...), end
}
