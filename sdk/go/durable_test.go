//go:build !wasip1

package skep

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
)

// turn makes a turn of f in host.
func turn(t *testing.T, host *Fake, f func() error) {
	t.Helper()
	host.Self.Run = ""
	if err := host.Call(exported(f), nil, nil); err != nil {
		t.Fatal(err)
	}
}

func TestStorageIsTheTurns(t *testing.T) {
	host := &Fake{}
	var kv KV
	turn(t, host, func() error {
		_, err := Storage.Set("n", 1)
		_, err2 := kv.Set("other", 2)
		return errors.Join(err, err2)
	})
	err := host.Call(exported(func() error {
		if _, err := Storage.Set("n", 2); err != nil {
			return err
		}
		if err := Agent("mail").Instance("ada").Send("note", "hi"); err != nil {
			return err
		}
		if _, err := Schedule(AlarmOptions{Delay: 1}); err != nil {
			return err
		}
		return errors.New("no")
	}), nil, nil)
	if err == nil || len(host.Messages) != 0 || len(host.Alarms()) != 0 {
		t.Errorf("%v left %v and %v", err, host.Messages, host.Alarms())
	}
	turn(t, host, func() error {
		var n int
		if _, err := Storage.Get("n", &n); err != nil || n != 1 {
			t.Errorf("n = %d, %v", n, err)
		}
		entries, _, err := Storage.List(KVRange{})
		if len(entries) != 1 {
			t.Errorf("storage has %v", entries)
		}
		return err
	})
	_ = run(host, func() error {
		_, _ = Storage.Set("n", 3)
		return errors.New("a run's slices stay")
	})
	turn(t, host, func() error {
		var n int
		_, err := Storage.Get("n", &n)
		if n != 3 {
			t.Errorf("n = %d", n)
		}
		return err
	})
}

func TestSQL(t *testing.T) {
	type base struct {
		ID int64 `json:"id"`
	}
	type row struct {
		base
		Base  base
		Name  string `json:"other" sql:"name"`
		Score *float64
		Done  bool
		Raw   []byte
		skip  int
	}
	var asked []any
	host := &Fake{Query: func(query string, params []any) ([]string, [][]any, error) {
		if query != "select" {
			return nil, nil, errors.New("near \"" + query + "\": syntax error")
		}
		asked = params
		return []string{"id", "name", "SCORE", "done", "raw", "skip"}, [][]any{
			{int64(math.MaxInt64), "Ada", 1.5, int64(1), []byte{}, int64(1)}, {int64(2), nil, nil, int64(0), []byte{255}, int64(2)},
		}, nil
	}}
	turn(t, host, func() error {
		type small int
		text := "p"
		got, err := Query[struct {
			ID    int64
			Name  string
			Score *float64
			Done  bool
			Raw   []byte
		}]("select", small(1), 2.5, &text, true, []byte{1}, nil, (*int)(nil), []byte(nil))
		if err != nil {
			return err
		}
		if d := cmp.Diff([]any{int64(1), 2.5, "p", int64(1), []byte{1}, nil, nil, nil}, asked); d != "" {
			t.Error(d)
		}
		if len(got) != 2 || got[0].ID != math.MaxInt64 || got[0].Name != "Ada" || *got[0].Score != 1.5 || !got[0].Done || got[0].Raw == nil ||
			got[1].Name != "" || got[1].Score != nil || got[1].Done || got[1].Raw[0] != 255 {
			t.Errorf("got %+v", got)
		}
		rows, err := SQL("select")
		if err != nil {
			return err
		}
		var r row
		if err := rows.Scan(0, &r); err != nil || r.ID != math.MaxInt64 || r.Name != "Ada" || r.skip != 0 {
			t.Errorf("%v, %+v", err, r)
		}
		maps, err := Query[map[string]any]("select")
		want := map[string]any{"id": int64(2), "name": nil, "SCORE": nil, "done": int64(0), "raw": []byte{255}, "skip": int64(2)}
		if d := cmp.Diff(want, maps[1]); d != "" {
			t.Error(d)
		}
		ids, err2 := Query[uint64]("select")
		if ids[1] != 2 {
			t.Errorf("ids are %v", ids)
		}
		if _, err := Query[int8]("select"); err == nil || err.Error() != `sql: column "id": a value of type int64 does not fit into a int8` {
			t.Errorf("too small: %v", err)
		}
		if _, err := SQL("select", time.Now()); err == nil || !strings.Contains(err.Error(), "parameter 1") {
			t.Errorf("a time: %v", err)
		}
		if _, err := SQL("selekt"); err == nil || !strings.Contains(err.Error(), "syntax error") {
			t.Errorf("a mistake: %v", err)
		}
		for _, out := range []any{nil, r, (*row)(nil)} {
			if rows.Scan(0, out) == nil {
				t.Errorf("scanned into %T", out)
			}
		}
		if rows.Scan(2, &r) == nil || rows.Scan(-1, &r) == nil {
			t.Error("scanned a row that is not there")
		}
		return errors.Join(err, err2)
	})
}

func TestShared(t *testing.T) {
	type board struct{ Moves []string }
	var state Shared[board]
	host := &Fake{}
	turn(t, host, func() error {
		b, version, err := state.Get()
		if err != nil || version != 0 || b.Moves != nil {
			t.Errorf("at first: %v, %d, %v", b, version, err)
		}
		version, err = state.Set(board{[]string{"e4"}})
		_, late := state.SetIf(version-1, board{})
		var e *CallError
		if !errors.As(late, &e) || e.Kind != "conflict" {
			t.Errorf("late: %v", late)
		}
		now, err2 := state.SetIf(version, board{[]string{"e4", "e5"}})
		b, version, err3 := state.Get()
		if len(b.Moves) != 2 || version != now || now != 2 {
			t.Errorf("in the end: %v, %d, %d", b, version, now)
		}
		return errors.Join(err, err2, err3)
	})
}

func TestAlarms(t *testing.T) {
	host := &Fake{}
	turn(t, host, func() error {
		a, err := Schedule(AlarmOptions{Name: "tea", Method: "brew", Payload: pair{1, 2}, Delay: time.Minute, Retry: Retry{Attempts: 2, Delay: time.Second}})
		if err != nil || a.Name != "tea" || !a.At.Equal(Now().Add(time.Minute)) {
			t.Errorf("%+v, %v", a, err)
		}
		kept, err := Schedule(AlarmOptions{Name: "tea", Delay: time.Hour, Keep: true})
		if err != nil || kept.Method != "brew" {
			t.Errorf("%+v, %v", kept, err)
		}
		for range 2 { // the same
			_, err2 := Schedule(AlarmOptions{Every: time.Hour})
			err = errors.Join(err, err2)
		}
		_, err3 := Schedule(AlarmOptions{Name: "nightly", Cron: "@daily", Zone: "Europe/Rome", Overlap: "queue"})
		_, err4 := Schedule(AlarmOptions{Name: "at", At: Now().Add(time.Microsecond)})
		return errors.Join(err, err3, err4)
	})
	turn(t, host, func() error {
		list, err := Alarms()
		if len(list) != 4 || !list[0].At.Equal(Now().Add(time.Millisecond)) || list[1].Zone != "Europe/Rome" || list[2].Every != time.Hour {
			t.Errorf("alarms are %+v", list)
		}
		var p pair
		if err := list[3].Decode(&p); err != nil || p.B != 2 {
			t.Errorf("payload %v, %v", p, err)
		}
		there, err2 := CancelAlarm("at")
		again, err3 := CancelAlarm("at")
		if !there || again {
			t.Error("cancelled", there, again)
		}
		return errors.Join(err, err2, err3)
	})

	// The call fails twice; the alarm is dead then, and stays to be seen.
	fail := func() int32 { return Do(func(pair) (struct{}, error) { return struct{}{}, errors.New("no water") }) }
	due := host.Now.Add(time.Minute)
	if err := host.Fire("tea", fail); err == nil || !host.Now.Equal(due) {
		t.Errorf("%v at %v", err, host.Now)
	}
	if a := host.Alarms()[2]; a.Attempt != 1 || a.Dead || !a.At.Equal(due.Add(time.Second)) {
		t.Errorf("after one failure: %+v", a)
	}
	_ = host.Fire("tea", fail)
	if a := host.Alarms()[2]; !a.Dead || a.Error != "no water" {
		t.Errorf("after two: %+v", a)
	}
	work := func() int32 { return Do(func(struct{}) (struct{}, error) { return struct{}{}, nil }) }
	hourly := host.Alarms()[1]
	if err := host.Fire(hourly.Name, work); err != nil || host.Alarms()[1].At.Sub(hourly.At) != time.Hour {
		t.Errorf("%v, %v", err, host.Alarms())
	}
	if err := host.Fire("tea", work); err != nil || len(host.Alarms()) != 2 {
		t.Errorf("%v, %v", err, host.Alarms())
	}
	// One that is set again by its own call stays.
	again := exported(func() error { _, err := Schedule(AlarmOptions{Name: "nightly", Delay: 1}); return err })
	if err := host.Fire("nightly", again); err != nil || len(host.Alarms()) != 2 {
		t.Errorf("%v, %v", err, host.Alarms())
	}
	if err := host.Fire("tea", work); err == nil {
		t.Error("an alarm that is gone went off")
	}
}

func TestInstances(t *testing.T) {
	host := &Fake{Self: Identity{Agent: "desk", Key: "k"}, AnswerInstance: func(agent, key, method string, in []byte) ([]byte, error) {
		return append(in, agent+key+method...), nil
	}}
	turn(t, host, func() error {
		self, err := Self()
		if self.Agent != "desk" || self.Key != "k" {
			t.Errorf("self is %+v", self)
		}
		var got string
		room := Agent("chat").Instance("room")
		err2 := room.Call("post", "hi ", &got)
		if got != "hi chatroompost" {
			t.Errorf("got %q", got)
		}
		child := Agent("desk").Child("c")
		err3 := child.Send("start", pair{1, 2})
		if err := Outside(func() error { return Agent("plain").Call("f", nil, nil) }); err == nil {
			t.Error("a call that nobody answers works")
		}
		return errors.Join(err, err2, err3, child.Delete())
	})
	want := []abi.AgentCall{{Agent: "desk", Function: "start", Type: "application/json", Input: []byte(`{"A":1,"B":2}`), Key: "c", Child: true, Send: true}}
	if d := cmp.Diff(want, host.Messages); d != "" {
		t.Error(d)
	}
}

func TestSockets(t *testing.T) {
	host := &Fake{}
	host.Connect(Socket{ID: "1", Tags: []string{"red"}})
	host.Connect(Socket{ID: "2"})
	message := func() int32 {
		return Do(func(e SocketEvent) (struct{}, error) {
			var p pair
			if err := e.Decode(&p); err != nil || p.B != 2 {
				t.Errorf("%v, %v", p, err)
			}
			err := Broadcast(e.Data, &BroadcastOptions{Except: []string{e.Socket.ID}})
			return struct{}{}, errors.Join(err, e.Socket.Attach(p), e.Socket.Tag("blue", "round"), e.Socket.Send(p), e.Socket.Send([]byte{1}))
		})
	}
	text := `{"A":1,"B":2}`
	if err := host.Call(message, abi.SocketEvent{Socket: abi.Socket{ID: "2"}, Text: &text}, nil); err != nil {
		t.Fatal(err)
	}
	want := []abi.SocketSend{{Except: []string{"2"}, Text: &text}, {To: []string{"2"}, Text: &text}, {To: []string{"2"}, Base64: []byte{1}}}
	if d := cmp.Diff(want, host.Frames); d != "" {
		t.Error(d)
	}
	if err := host.Call(message, abi.SocketEvent{Socket: abi.Socket{ID: "1"}, Base64: []byte(text)}, nil); err != nil {
		t.Fatal(err)
	}
	turn(t, host, func() error {
		list, err := Sockets("blue")
		if len(list) != 2 {
			t.Errorf("blue are %+v", list)
		}
		var p pair
		err2 := list[1].Attachment(&p)
		if p.A != 1 || len(list[1].Tags) != 2 {
			t.Errorf("%v, %v", p, list[1])
		}
		err3 := errors.Join(list[0].Tag(), list[1].Close(1000, "bye"))
		all, err4 := Sockets("")
		if len(all) != 1 || len(all[0].Tags) != 0 {
			t.Errorf("left are %v", all)
		}
		return errors.Join(err, err2, err3, err4)
	})
	closed := func() int32 {
		return Do(func(e SocketEvent) (struct{}, error) {
			if e.Data != nil || e.Code != 1001 || e.Reason != "away" || e.Decode(new(int)) == nil {
				t.Errorf("got %+v", e)
			}
			return struct{}{}, nil
		})
	}
	if err := host.Call(closed, abi.SocketEvent{Socket: abi.Socket{ID: "1"}, Code: 1001, Reason: "away"}, nil); err != nil || len(host.Closed) != 1 {
		t.Errorf("%v, %v", err, host.Closed)
	}
}
