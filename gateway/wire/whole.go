package wire

// WholeMeter returns a Meter of an answer that is no stream. It keeps the answer, of at most MaxFrame bytes, and read tells what the bytes say that have
// come until now, which may be no JSON yet. A longer answer passes unread.
func WholeMeter(read func(body []byte) MeterState) Meter { return &wholeMeter{read: read} }

type wholeMeter struct {
	read  func(body []byte) MeterState
	body  []byte
	over  bool
	known bool // s is that of body
	s     MeterState
}

func (m *wholeMeter) Write(p []byte) {
	m.known = false
	if m.over || len(m.body)+len(p) > MaxFrame {
		m.over, m.body = true, nil
		return
	}
	m.body = append(m.body, p...)
}

func (m *wholeMeter) State() MeterState {
	if !m.known {
		m.known, m.s = true, MeterState{Content: m.over}
		if !m.over {
			m.s = m.read(m.body)
		}
	}
	return m.s
}
