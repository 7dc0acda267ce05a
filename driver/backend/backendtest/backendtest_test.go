package backendtest

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/driver"
)

func TestDrift(t *testing.T) {
	s := Shapes{}
	s.Add([]byte(`{"type":"a","x":1,"list":[{"y":"v"},{"z":null}],"data":{"k":{"deep":true}}}`+"\nno json\n"+`{"type":"b"}`+"\n"),
		func(v map[string]any) string { return v["type"].(string) }, "a: data")
	known := map[string]bool{
		"a: type string": false, "a: x string": false, "a: list list": false, "a: list[] object": false, "a: list[].y string": false, "a: list[].z null": false,
		"a: data object": false, "b: type string": false, "b: seldom string": true,
	}
	want := []string{"says what it did not: a: x number", "does not say any more: a: x string"}
	if diff := cmp.Diff(want, s.drift(known)); diff != "" {
		t.Errorf("the drift (-want +got):\n%s", diff)
	}
}

func TestEnvelope(t *testing.T) {
	e := func(turn, kind string, data any) driver.Event { return driver.NewEvent(turn, kind, data) }
	begun := []driver.Event{e("", driver.SessionStarted, driver.SessionData{ID: "i", CLI: "c"}), e("t", driver.TurnStarted, nil)}
	end := e("t", driver.TurnEnded, driver.TurnEnd{Status: driver.TurnCompleted})
	text := func(kind, s string) driver.Event { return e("t", kind, driver.TextData{Item: "1", Text: s}) }
	tool := func(kind string) driver.Event {
		return e("t", kind, driver.ToolData{ID: "1", Name: "n", Action: driver.ActionTool})
	}
	for _, c := range []struct {
		name string
		list []driver.Event
		want string // part of the error, or "" for none
	}{
		{"good", append(begun[:2:2], text(driver.TextDelta, "a"), text(driver.TextDelta, "b"), text(driver.TextDone, "ab"), tool(driver.ToolStarted), tool(driver.ToolEnded), end), ""},
		{"before the session", begun[1:], "before the session"},
		{"twice", append(begun[:2:2], begun[1]), "second time"},
		{"no end", begun, "has not ended"},
		{"after the end", append(begun[:2:2], end, text(driver.TextDelta, "a")), `is "ended"`},
		{"other text", append(begun[:2:2], text(driver.TextDelta, "a"), text(driver.TextDone, "ab"), end), "pieces"},
		{"tool that did not begin", append(begun[:2:2], tool(driver.ToolEnded), end), "the call is"},
		{"wrong data", append(begun[:2:2], e("t", driver.TextDelta, driver.TurnEnd{Status: "x"})), "unknown field"},
		{"unparsed", append(begun[:2:2], e("t", driver.Unparsed, driver.UnparsedData{Raw: "x"})), "does not know"},
		{"unknown", append(begun[:2:2], e("t", "what", nil)), "nobody knows"},
	} {
		got := ""
		if err := Envelope(c.list); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// What runs on an island sees its own loopback, and nothing of the host.
func TestIsland(t *testing.T) {
	n, err := newIsland()
	if err != nil {
		missing(t, "a network namespace cannot be had (%v): run the test as root", err)
	}
	defer n.close()
	host, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	there, err := n.listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Close() }()
	dial := func(addr string) (err error) {
		var c net.Conn
		n.run(func() { c, err = net.DialTimeout("tcp", addr, time.Second) })
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := dial(there.Addr().String()); err != nil {
		t.Errorf("its own loopback: %v", err)
	}
	_, port, _ := net.SplitHostPort(host.Addr().String())
	addrs := []string{"127.0.0.1:" + port, "169.254.169.254:80"}
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, a := range list {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
				addrs = append(addrs, net.JoinHostPort(ip.IP.String(), port))
			}
		}
	}
	for _, addr := range addrs {
		if dial(addr) == nil {
			t.Errorf("%s can be reached", addr)
		}
	}
}
