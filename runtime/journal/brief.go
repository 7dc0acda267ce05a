package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skep-dev/skep/abi"
)

// MaxBrief is how many bytes of what a call asked for are kept.
const MaxBrief = 160

// Brief tells a person what a call asks for, in up to MaxBrief bytes: of a request the method and the URL, without the values of its
// query, as these may be what lets one in; of storage the keys; of a call of an agent which one, and with what; of a wait for what.
func Brief(name string, in []byte) string {
	s, ok := brief(name, in)
	if !ok {
		s = rawBrief(in)
	}
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= MaxBrief { // after that, for it may be longer
		return s
	}
	const more = "..."
	end := MaxBrief - len(more)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + more
}

// rawBrief is of what has no form of its own here.
func rawBrief(in []byte) string {
	var out bytes.Buffer
	if len(in) <= maxParsed && json.Compact(&out, in) == nil {
		return out.String()
	}
	return string(in[:min(len(in), MaxBrief+utf8.UTFMax)])
}

// maxParsed is how large an input is read for its brief; of a larger one that is how it begins.
const maxParsed = 16 << 10

func brief(name string, in []byte) (string, bool) {
	switch name {
	case abi.CallHTTPOpen, abi.CallHTTP:
		return briefRequest(name, in)
	case abi.CallHTTPRead, abi.CallHTTPWrite, abi.CallHTTPHead, abi.CallHTTPClose:
		if id, err := abi.SplitHTTPID(in[:min(len(in), 4)]); err == nil {
			return fmt.Sprintf("exchange %d", id), true
		}
		return "", false
	}
	if len(in) > maxParsed {
		return "", false
	}
	switch name {
	case abi.CallSleep:
		var q abi.Sleep
		if json.Unmarshal(in, &q) != nil {
			return "", false
		}
		if q.Until != 0 {
			return "until " + time.UnixMilli(q.Until).UTC().Format(time.RFC3339), true
		}
		return span(q.For), true
	case abi.CallWait:
		var q abi.Wait
		if json.Unmarshal(in, &q) != nil {
			return "", false
		}
		s := "event " + q.Type
		if q.Timeout > 0 {
			s += ", up to " + span(q.Timeout)
		}
		return s, true
	case abi.CallResult:
		var q abi.Result
		err := json.Unmarshal(in, &q)
		return "run " + q.Run, err == nil
	case abi.CallStart:
		var q abi.Start
		err := json.Unmarshal(in, &q)
		return called(q.Agent, q.Key, q.Function, q.Input), err == nil
	case abi.CallAgent:
		var q abi.AgentCall
		err := json.Unmarshal(in, &q)
		return called(q.Agent, q.Key, q.Function, q.Input), err == nil
	case abi.CallTool:
		var q abi.ToolCall
		err := json.Unmarshal(in, &q)
		return strings.TrimSpace(q.Tool + " " + string(q.Args[:min(len(q.Args), MaxBrief)])), err == nil
	case abi.CallToolChange:
		var q abi.ToolChange
		err := json.Unmarshal(in, &q)
		q.Calls = slices.DeleteFunc(q.Calls, func(c abi.ToolCall) bool { return c.Undo })
		return fmt.Sprintf("%d calls: %s", len(q.Calls), q.Title), err == nil
	case abi.CallStorageGet, abi.CallStateGet:
		var q abi.StateGet
		err := json.Unmarshal(in, &q)
		return strings.Join(q.Keys, ", "), err == nil
	case abi.CallStorageSet, abi.CallStorageDelete, abi.CallStateSet, abi.CallStateDelete:
		var q abi.StateEdit
		err := json.Unmarshal(in, &q)
		return edited(q), err == nil
	case abi.CallStorageBatch:
		var q abi.StateBatch
		err := json.Unmarshal(in, &q)
		parts := make([]string, len(q.Edits))
		for i, e := range q.Edits {
			parts[i] = strings.TrimSpace(e.Do + " " + edited(e.StateEdit))
		}
		return strings.Join(parts, ", "), err == nil
	case abi.CallStorageSQL:
		var q abi.SQL
		err := json.Unmarshal(in, &q)
		return strings.Join(strings.Fields(q.Query), " "), err == nil && len(q.Params) == 0
	}
	return "", false
}

// span is a duration in milliseconds: "1h30m", "250ms".
func span(ms int64) string {
	s := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func briefRequest(name string, in []byte) (string, bool) {
	head := in
	if name == abi.CallHTTPOpen {
		head, _, _ = abi.SplitHTTPHead(in)
	}
	var req struct{ Method, URL string }
	if json.Unmarshal(head, &req) != nil {
		return "an unknown request", true // and not its bytes, which may hold what a query has
	}
	url, _, _ := strings.Cut(req.URL, "#")
	url, query, asked := strings.Cut(url, "?")
	if asked {
		names := strings.Split(query, "&")
		for i, n := range names {
			if name, _, valued := strings.Cut(n, "="); valued {
				names[i] = name + "="
			}
		}
		url += "?" + strings.Join(names, "&")
	}
	if scheme, rest, ok := strings.Cut(url, "://"); ok {
		if user, host, named := strings.Cut(rest, "@"); named && !strings.Contains(user, "/") {
			url = scheme + "://" + host
		}
	}
	return strings.TrimSpace(req.Method + " " + url), true
}

func called(name, key, function string, in []byte) string {
	if key != "" {
		name += "/" + key
	}
	return strings.TrimSpace(strings.Trim(name+"."+function, ".") + " " + string(in[:min(len(in), MaxBrief)]))
}

func edited(e abi.StateEdit) string {
	if len(e.JSON) > 0 {
		return e.Key + " = " + string(e.JSON[:min(len(e.JSON), MaxBrief)])
	}
	if e.Text != nil {
		return e.Key + " = " + strconv.Quote((*e.Text)[:min(len(*e.Text), MaxBrief)])
	}
	return e.Key
}

// Describe names a call for a person: what it is, and its brief.
func Describe(name, brief string) string { return strings.TrimSpace(name + " " + brief) }
