package mcp

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
)

func TestToolName(t *testing.T) {
	allowed := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	seen := map[string]string{}
	for _, name := range []string{"git.status", "git.weird name", "git.naïve", "s." + strings.Repeat("x", 200), "s." + strings.Repeat("x", 201), "s." + strings.Repeat("é", 100)} {
		got := toolName(name)
		if !allowed.MatchString(got) || seen[got] != "" {
			t.Errorf("%q is called %q, as is %q", name, got, seen[got])
		}
		seen[got] = name
	}
	if got := toolName("git.status"); got != "git.status" {
		t.Error(got)
	}
}

func TestSeal(t *testing.T) {
	s := newSeal(make([]byte, 32))
	c := carried{Who: "token", Door: "door", What: "tools/call x", Args: digest([]byte(`{"a": 1, "b": 2}`)), Run: "run", State: json.RawMessage(`"s"`)}
	text := s.close(c)
	same := c
	same.Args = digest([]byte(`{"b":2,"a":1}`))
	got, err := s.open(text, same)
	if err != nil || got.Run != "run" || string(got.State) != `"s"` {
		t.Fatal(got, err)
	}
	for what, want := range map[string]carried{
		"another's": {Who: "other", Door: c.Door, What: c.What, Args: c.Args}, "of another door": {Who: c.Who, Door: "other", What: c.What, Args: c.Args},
		"of another call": {Who: c.Who, Door: c.Door, What: "tools/call y", Args: c.Args}, "with other arguments": {Who: c.Who, Door: c.Door, What: c.What},
	} {
		if _, err := s.open(text, want); err == nil {
			t.Errorf("a state %s was taken", what)
		}
	}
	other := "A"
	if text[0] == 'A' {
		other = "B"
	}
	for _, bad := range []string{"", "x", text + "-TAMPERED", text[1:], other + text[1:], strings.Repeat("A", maxCarried+1)} {
		_, err := s.open(bad, c)
		if e, ok := err.(*jsonrpc.Error); !ok || e.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if _, err := newSeal(nil).open(text, c); err == nil {
		t.Error("a state of another server was taken")
	}
	if carryTime > 48*time.Hour {
		t.Error("states live long")
	}
}

// FuzzSeal changes one byte of a state, or gives another text: neither is taken. Its key is of its process, so no seed is good in another.
func FuzzSeal(f *testing.F) {
	s := newSeal(nil)
	good := s.close(carried{Who: "a"})
	f.Add("", uint16(0), byte(1))
	f.Add(good, uint16(20), byte(1))
	f.Fuzz(func(t *testing.T, text string, at uint16, by byte) {
		changed := []byte(good)
		changed[int(at)%len(changed)] ^= by
		for _, state := range []string{text, string(changed)} {
			if _, err := s.open(state, carried{Who: "a"}); err == nil && state != good {
				t.Errorf("%q was taken", state)
			}
		}
	})
}

// One no among several answers is enough, in whichever order they come.
func TestDeclined(t *testing.T) {
	if (&follower{}).declined() {
		t.Error("nobody was asked, and declined")
	}
	f := &follower{answers: make(chan elicited, 4)}
	f.answers <- elicited{err: errors.New("the client is gone")}
	f.answers <- elicited{res: &sdk.ElicitResult{Action: "accept"}}
	if f.declined() {
		t.Error("nobody has declined")
	}
	f.answers <- elicited{res: &sdk.ElicitResult{Action: "accept"}}
	f.answers <- elicited{res: &sdk.ElicitResult{Action: "decline"}}
	if !f.declined() {
		t.Error("the second answer does not count")
	}
}

func TestOrigin(t *testing.T) {
	h := &Handler{o: Options{Origins: []string{"https://app.example"}}}
	for origin, want := range map[string]bool{
		"": true, "http://127.0.0.1:7537": true, "http://localhost:3000": true, "https://app.example": true,
		"https://evil.example": false, "null": false, "http://127.0.0.1.evil.example": false, "http://localhost.evil.example:1": false,
	} {
		r := &http.Request{Host: "127.0.0.1:7537", Header: http.Header{}}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if err := h.checkOrigin(r); (err == nil) != want {
			t.Errorf("%q: %v", origin, err)
		}
	}
	r := &http.Request{Host: "skep.example", Header: http.Header{"Origin": {"http://localhost:3000"}}}
	if h.checkOrigin(r) == nil {
		t.Error("a local page may call a server that is elsewhere")
	}
}

func TestAnnotations(t *testing.T) {
	for effect, want := range map[agent.Effect][2]bool{ // read only, destructive
		agent.Read: {true, false}, agent.Modify: {false, false}, agent.ModifyExecute: {false, true}, agent.Execute: {false, true}, agent.Unclassified: {false, true},
	} {
		a := annotations(agent.Tool{Effect: effect})
		if a.ReadOnlyHint != want[0] || *a.DestructiveHint != want[1] {
			t.Errorf("%s: %+v", effect, a)
		}
	}
}

func TestSchemas(t *testing.T) {
	for in, want := range map[string]string{
		``: `{"type":"object"}`, `true`: `{"type":"object"}`, `{"type":"array"}`: `{"type":"object"}`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`: `{"properties":{"a":{"type":"string"}},"type":"object"}`,
	} {
		if got := inputSchema(json.RawMessage(in)); string(got) != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestFindArtifacts(t *testing.T) {
	got := findArtifacts([]byte(`{"b":[{"artifact":"artifacts/R/1.png","type":"image/png","size":3}],"a":{"artifact":"../x","type":"t","size":1},"c":{"artifact":"a","type":"t","size":1,"d":1}}`))
	if len(got) != 1 || got[0].Path != "artifacts/R/1.png" {
		t.Error(got)
	}
	for _, uri := range []string{"skep://sessions/S/files/a/b%20c.txt", "skep://sessions/S/files/x"} {
		session, file, ok := parseFile(uri)
		if !ok || fileURI(session, file) != uri {
			t.Error(uri, session, file, ok)
		}
	}
	for _, uri := range []string{"skep://sessions/S/files/../x", "skep://sessions//files/x", "skep://sessions/S%2F/files/x", "skep://sessions/S/files/%2e%2e/x", "file:///etc/passwd"} {
		if _, _, ok := parseFile(uri); ok {
			t.Error(uri)
		}
	}
}

func FuzzReplies(f *testing.F) {
	for _, s := range []string{`null`, `"x"`, `{"content":[{"type":"text","text":"x"}]}`, `{"contents":[{"uri":"a:b"}]}`, `{"messages":[]}`,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`, `{"structuredContent":[1]}`, `{"content":[{"type":"nope"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		if res, err := toolReply(b); err == nil {
			encode(res)
		}
		if res, err := promptReply(b); err == nil {
			encode(res)
		}
		if res, err := resourceReply("a:b", b); err == nil {
			encode(res)
		}
		if r, err := needs(b); err == nil && r != nil {
			wants(r.Requests, client{})
		}
		findArtifacts(b)
	})
}
