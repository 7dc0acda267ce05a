package link

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

var (
	key = bytes.Repeat([]byte{7}, KeySize)
	now = time.Date(2026, 11, 30, 9, 0, 0, 123, time.UTC)
)

func question() agent.Approval {
	args := json.RawMessage(`{"path": "/tmp/a", "text": "<x> & y"}`)
	return agent.Approval{
		ID: agent.NewApprovalID("01JDRUN", 7), App: "default", Agent: "code", Session: "01JDSES", Run: "01JDRUN", Call: 7, Title: "write", Created: now,
		Calls: []agent.ApprovalCall{{
			Tool: "fs.write_file", Digest: agent.DigestOf([]byte("tool")), Args: args, ArgsDigest: agent.DigestOf(args),
			Decision: agent.Decision{Verdict: agent.Ask, Effect: agent.Modify, Rule: "default modify", Reason: "it changes things"},
		}},
		Expires: now.Add(time.Hour),
	}
}

func make1(t testing.TB) (Link, string) {
	t.Helper()
	l, text, err := Make(key, question(), 0, now)
	if err != nil {
		t.Fatal(err)
	}
	return l, text
}

func wantKind(t *testing.T, what string, err error, kind agent.Kind) {
	t.Helper()
	if err == nil || agent.KindOf(err) != kind || agent.AsError(err).Hint == "" {
		t.Errorf("%s: error = %v, want %v with a hint", what, err, kind)
	}
}

func TestLink(t *testing.T) {
	made, text := make1(t)
	if len(text) > 250 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("%d characters: %s", len(text), text)
	}
	got, err := Open(key, text, now.Add(Default-time.Second))
	if err != nil || got != made {
		t.Fatalf("%+v %v, want %+v", got, err, made)
	}
	if got.App != "default" || got.ID != "01JDRUN-7" || !got.Expires.Equal(now.Add(Default).Truncate(time.Second)) {
		t.Errorf("%+v", got)
	}
	if err := got.Check(question()); err != nil {
		t.Error(err)
	}
	if _, other := make1(t); other == text {
		t.Error("two links to one question are the same")
	}
	// What happened to the record on its way through the store changes nothing.
	b, _ := json.Marshal(question())
	var stored agent.Approval
	if err := json.Unmarshal(b, &stored); err != nil {
		t.Fatal(err)
	}
	if err := got.Check(stored); err != nil {
		t.Error(err)
	}
}

func TestLate(t *testing.T) {
	_, text := make1(t)
	for _, after := range []time.Duration{Default, Default + time.Second, 1000 * time.Hour} {
		_, err := Open(key, text, now.Add(after))
		wantKind(t, after.String(), err, agent.Denied)
	}
	for _, lasts := range []time.Duration{-time.Second, time.Millisecond, Max + 1} {
		if _, _, err := Make(key, question(), lasts, now); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", lasts, err)
		}
	}
	l, _, err := Make(key, question(), Max, now) // the question itself ends before
	if err != nil || !l.Expires.Equal(now.Add(time.Hour).Truncate(time.Second)) {
		t.Errorf("%v %v", l.Expires, err)
	}
	_, _, err = Make(key, question(), 0, now.Add(time.Hour))
	wantKind(t, "a question whose time is up", err, agent.Conflict)
}

func TestForeign(t *testing.T) {
	_, text := make1(t)
	_, err := Open(bytes.Repeat([]byte{8}, KeySize), text, now)
	wantKind(t, "another server's key", err, agent.Denied)
	for _, bad := range []string{"", "x", text[1:], text[:len(text)-1], text + "A", text + "=", text + " ", strings.ToLower(text), strings.Repeat("A", 300), strings.Repeat("A", 100_000)} {
		_, err := Open(key, bad, now)
		wantKind(t, bad[:min(len(bad), 20)], err, agent.Denied)
	}
	if _, err := Open(nil, text, now); err == nil {
		t.Error("a link is opened without a key")
	}
	if _, _, err := Make(key[:KeySize-1], question(), 0, now); err == nil {
		t.Error("a short key makes links")
	}
}

func TestEachBit(t *testing.T) {
	_, text := make1(t)
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if _, err := Open(key, base64.RawURLEncoding.EncodeToString(b), now); agent.KindOf(err) != agent.Denied {
			t.Fatalf("bit %d: %v", i, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
	for i := range text { // and no other text stands for the same bytes
		for _, c := range "AQgw1_" {
			if other := text[:i] + string(c) + text[i+1:]; other != text {
				if _, err := Open(key, other, now); agent.KindOf(err) != agent.Denied {
					t.Fatalf("character %d: %v", i, err)
				}
			}
		}
	}
}

func TestAnotherQuestion(t *testing.T) {
	l, _ := make1(t)
	for name, change := range map[string]func(*agent.Approval){
		"another app":        func(a *agent.Approval) { a.App = "other" },
		"another call":       func(a *agent.Approval) { a.ID = agent.NewApprovalID(a.Run, 8) },
		"another run":        func(a *agent.Approval) { a.Run = "01JDRUM" },
		"another agent":      func(a *agent.Approval) { a.Agent = "other" },
		"another tool":       func(a *agent.Approval) { a.Calls[0].Tool = "fs.delete" },
		"the tool changed":   func(a *agent.Approval) { a.Calls[0].Digest = agent.DigestOf([]byte("tool 2")) },
		"other arguments":    func(a *agent.Approval) { a.Calls[0].ArgsDigest = agent.DigestOf([]byte("{}")) },
		"other shown":        func(a *agent.Approval) { a.Calls[0].Args = json.RawMessage(`{}`) },
		"another effect":     func(a *agent.Approval) { a.Calls[0].Decision.Effect = agent.Execute },
		"one call more":      func(a *agent.Approval) { a.Calls = append(a.Calls, a.Calls[0]) },
		"no call":            func(a *agent.Approval) { a.Calls = nil },
		"another title":      func(a *agent.Approval) { a.Title = "read" },
		"a question instead": func(a *agent.Approval) { a.Asks = &agent.Question{Message: "?"} },
		"asked anew":         func(a *agent.Approval) { a.Created = a.Created.Add(1) },
	} {
		a := question()
		change(&a)
		wantKind(t, name, l.Check(a), agent.Conflict)
	}
	a := question()
	a.Agent, a.Session = a.Agent+string(a.Session[:1]), a.Session[1:]
	wantKind(t, "the same text cut elsewhere", l.Check(a), agent.Conflict)
}

func FuzzOpen(f *testing.F) {
	_, text := make1(f)
	f.Add(text)
	f.Add(text[:40])
	f.Fuzz(func(t *testing.T, s string) {
		if l, err := Open(key, s, now); (err == nil) != (s == text) && l.ID == "" {
			t.Errorf("%q: %+v %v", s, l, err)
		}
	})
}
