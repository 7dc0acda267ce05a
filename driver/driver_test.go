package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

func TestFaultKeepsItsKind(t *testing.T) {
	in := &agent.Error{Kind: agent.Conflict, Msg: "no", Hint: "wait"}
	f := FaultOf(in)
	var back *agent.Error
	if !errors.As(f.Err(), &back) || back.Kind != in.Kind || back.Msg != in.Msg || back.Hint != in.Hint {
		t.Errorf("%+v", f)
	}
	if FaultOf(nil) != nil || (*Fault)(nil).Err() != nil {
		t.Error("nothing is a fault")
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text       string
		most       int
		head, tail string
	}{
		{"abc", 3, "abc", "abc"}, {"abc", 2, "ab", "bc"}, {"ää", 3, "ä", "ä"}, {"ää", 1, "", ""}, {"a😀", 4, "a", "😀"}, {"", 0, "", ""},
	} {
		if h, l := CutText(c.text, c.most), CutTail(c.text, c.most); h != c.head || l != c.tail {
			t.Errorf("%q at %d: %q and %q", c.text, c.most, h, l)
		}
	}
}

// Long texts are cut where they are, and the rest of the event stays.
func TestFit(t *testing.T) {
	e := NewEvent("1", PermissionAsked, PermissionData{ID: "7", Action: ActionRun, Args: Body(map[string]string{"command": strings.Repeat("ä", MaxEvent)})})
	e.Fit()
	var d PermissionData
	if err := e.Read(&d); err != nil || !e.Cut || d.ID != "7" || len(e.Data) > MaxEvent || len(d.Args) < MaxEvent/4 || !utf8.Valid(e.Data) {
		t.Errorf("cut %v, %d bytes, %v", e.Cut, len(e.Data), err)
	}
	many := map[string]any{"id": "7", "list": make([]int, MaxEvent)}
	e = Event{Type: "x", Data: Body(many)}
	e.Fit()
	if string(e.Data) != `{"id":"7"}` || !e.Cut {
		t.Errorf("%.100s", e.Data)
	}
	wide := map[string]int{"id": 1234567890} // the longest goes first, and no more goes than has to; one at a time, each looked at, would take minutes
	for i := range 20_000 {
		wide[fmt.Sprintf("%06d", i)] = 1
	}
	e = Event{Type: "x", Data: Body(wide)}
	e.Fit()
	var left map[string]int
	if err := e.Read(&left); err != nil || !e.Cut || len(left) != (MaxEvent-1)/11 || left["id"] != 0 {
		t.Errorf("%d fields are left, %v", len(left), err)
	}
	e = Event{Type: "x", Data: json.RawMessage("{no")}
	e.Fit()
	if e.Type != Unparsed || string(e.Data) != `{"raw":"{no"}` || e.Cut {
		t.Errorf("%s %s", e.Type, e.Data)
	}
}

func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	return NewConn(x, nil), NewConn(y, nil)
}

func TestConn(t *testing.T) {
	a, b := pair(t)
	text := strings.Repeat("0123456789", 50_000)
	go func() {
		_, _ = io.WriteString(a, text)
		_ = a.CloseWrite()
	}()
	if got, err := io.ReadAll(b); err != nil || string(got) != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after the end: %v", err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Error(err)
	}
	go func() { // the other direction is still open
		_, _ = io.WriteString(b, "back")
		_ = b.Close()
	}()
	if got, err := io.ReadAll(a); string(got) != "back" || !errors.Is(err, ErrCut) {
		t.Errorf("%q %v", got, err)
	}
}
