package wire

import "testing"

func TestWholeMeter(t *testing.T) {
	reads := 0
	m := WholeMeter(func(body []byte) MeterState {
		reads++
		return MeterState{Chars: len(body), Ended: string(body) == "abc"}
	})
	m.Write([]byte("ab"))
	if s := m.State(); s.Ended || s.Chars != 2 {
		t.Errorf("%+v", s)
	}
	m.Write([]byte("c"))
	if s := m.State(); !s.Ended || s.Chars != 3 {
		t.Errorf("%+v", s)
	}
	if m.State(); reads != 2 {
		t.Errorf("read %d times, want once for each write", reads)
	}
	m.Write(make([]byte, MaxFrame))
	m.Write([]byte("d"))
	if s := m.State(); s.Ended || !s.Content || reads != 2 {
		t.Errorf("an answer that is too long: %+v, read %d times", s, reads)
	}
}
