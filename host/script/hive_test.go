package script

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// hive is an instance as a script sees it, in memory: enough of it to answer each call of abi's durable.go.
type hive struct {
	mu      sync.Mutex
	self    abi.Self
	state   abi.Shared
	kept    map[string]json.RawMessage // of storage, as JSON
	rows    string                     // what SQL answers
	alarms  map[string]abi.Alarm
	sockets []abi.Socket
	refuse  map[string]error  // by the name of a call
	answer  map[string]string // what is answered at once, of waits
	asked   []string          // name and body of each call
	numbers map[uint64]string // name of each call that has a number
}

func newHive(run string) *hive {
	return &hive{
		self: abi.Self{Agent: "room", Key: "lobby", Session: "s1", Run: run}, kept: map[string]json.RawMessage{}, rows: `{}`,
		alarms: map[string]abi.Alarm{}, refuse: map[string]error{}, answer: map[string]string{}, numbers: map[uint64]string{},
	}
}

func (p *hive) calls(ctx context.Context, name string, in []byte) ([]byte, error) {
	p.mu.Lock()
	p.asked = append(p.asked, strings.TrimSpace(name+" "+string(in)))
	if n := cell.Number(ctx); n > 0 {
		p.numbers[n] = name
	}
	out, err := p.do(name, in)
	p.mu.Unlock()
	if out == nil && err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s, ok := out.(string); ok {
		return []byte(s), err
	}
	b, _ := json.Marshal(out)
	return b, err
}

// do returns nil for what is not answered.
func (p *hive) do(name string, in []byte) (any, error) {
	if err := p.refuse[name]; err != nil {
		return "", err
	}
	if s, ok := p.answer[name]; ok {
		return s, nil
	}
	switch name {
	case abi.CallSelf:
		return p.self, nil
	case abi.CallSharedGet:
		return p.state, nil
	case abi.CallSharedSet:
		var q abi.SharedSet
		if err := json.Unmarshal(in, &q); err != nil {
			return "", err
		}
		if q.If != nil && *q.If != p.state.Version {
			return "", agent.Errorf(agent.Conflict, "the state has version %d, not %d", p.state.Version, *q.If)
		}
		p.state = abi.Shared{State: q.State, Version: p.state.Version + 1}
		return abi.Shared{Version: p.state.Version}, nil
	case abi.CallStorageGet:
		var q struct{ Keys []string }
		_ = json.Unmarshal(in, &q)
		var found []string
		for _, k := range q.Keys {
			if v, is := p.kept[k]; is {
				found = append(found, fmt.Sprintf(`{"key":%q,"version":1,"type":"application/json","json":%s}`, k, v))
			}
		}
		return `{"entries":[` + strings.Join(found, ",") + `]}`, nil
	case abi.CallStorageSet:
		var q struct {
			Key  string
			JSON json.RawMessage
		}
		_ = json.Unmarshal(in, &q)
		p.kept[q.Key] = q.JSON
		return `{"version":1}`, nil
	case abi.CallStorageBatch:
		return `{"version":1}`, nil
	case abi.CallStorageList:
		return `{"entries":[]}`, nil
	case abi.CallStorageSQL:
		return p.rows, nil
	case abi.CallAlarmSet:
		var q abi.AlarmSet
		if err := json.Unmarshal(in, &q); err != nil {
			return "", err
		}
		a := abi.Alarm{Name: q.Name, Method: q.Method, Payload: q.Payload, At: max(q.At, 1), Every: q.Every, Cron: q.Cron, Zone: q.Zone}
		if a.Name == "" {
			a.Name = "made-up"
		}
		p.alarms[a.Name] = a
		return a, nil
	case abi.CallAlarmList:
		var q abi.AlarmList
		_ = json.Unmarshal(in, &q)
		var page abi.Alarms
		for _, name := range slices.Sorted(maps.Keys(p.alarms)) {
			if "a/"+name <= q.After {
				continue
			}
			if len(page.Alarms) == 2 { // short pages, so that there are several
				page.After = "a/" + page.Alarms[1].Name
				break
			}
			page.Alarms = append(page.Alarms, p.alarms[name])
		}
		return page, nil
	case abi.CallAlarmCancel:
		var q abi.AlarmCancel
		_ = json.Unmarshal(in, &q)
		_, was := p.alarms[q.Name]
		delete(p.alarms, q.Name)
		return abi.AlarmCancelled{Cancelled: was}, nil
	case abi.CallSocketList:
		return abi.Sockets{Sockets: p.sockets}, nil
	case abi.CallSleep, abi.CallWait, abi.CallResult, abi.CallAgent:
		return nil, nil
	}
	return "", nil
}

// did lists the calls of which the name begins with one of prefixes.
func (p *hive) did(prefixes ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for _, a := range p.asked {
		if slices.ContainsFunc(prefixes, func(s string) bool { return strings.HasPrefix(a, s) }) {
			list = append(list, a)
		}
	}
	return list
}

// want calls a function and compares what it returns.
func (p *hive) want(t *testing.T, a *Agent, fn, in, want string) {
	t.Helper()
	if got := result(t, a, Call{Function: fn, Input: js(in), Calls: p.calls}); got != want {
		t.Errorf("%s(%s): got  %s\nwant %s", fn, in, got, want)
	}
}

// wantError calls a function that fails.
func (p *hive) wantError(t *testing.T, a *Agent, fn, in, want string) {
	t.Helper()
	out, _, err := a.Call(t.Context(), Call{Function: fn, Input: js(in), Calls: p.calls})
	if err == nil || !strings.Contains(agent.AsError(err).Msg, want) {
		t.Errorf("%s(%s): got %s, %v; want %q", fn, in, out.Body, err, want)
	}
}
