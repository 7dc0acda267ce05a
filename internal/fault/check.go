package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// outcome is what became of the acks.
type outcome struct {
	Refused  string // why the store could not be opened
	Right    int
	Reported int // reads that returned an error which says that data is damaged
	Lost     int
	Wrong    int
	Verify   string // what Verify said
	Example  string // of a loss or a wrong value
}

// check reads all that was acknowledged.
func check(s *store.Store, acks []ack) (outcome, error) {
	var o outcome
	ctx := context.Background()
	logs := map[string][]ack{}
	gone := map[string]bool{} // or perhaps
	turns := map[string]int64{}
	for _, a := range acks {
		if a.What == "going" {
			gone[a.ID] = true
		}
	}
	for _, a := range acks {
		switch a.What {
		case "turn", "at":
			if a.Seq != turns[a.ID]+1 && (a.What == "turn" || a.Seq != turns[a.ID]) {
				return o, fmt.Errorf("instance %s is at turn %d after %d", a.ID, a.Seq, turns[a.ID])
			}
			turns[a.ID] = a.Seq
		case "event":
			logs[a.ID] = append(logs[a.ID], a)
		case "agent":
			got, err := s.Agent(ctx, app, a.ID)
			if !gone[a.ID] || err == nil && got.Description != a.Data {
				o.note(a, got.Description, err)
			}
		case "gone":
			_, err := s.Agent(ctx, app, a.ID)
			if agent.KindOf(err) == agent.NotFound && err != nil {
				o.Right++
			} else {
				o.note(a, "still there", err)
			}
		case "run":
			got, err := s.Run(ctx, app, agent.RunID(a.ID))
			o.note(a, string(agent.DigestOf(got.Input.Body)), err)
		}
	}
	for id, acks := range logs {
		if err := o.events(ctx, s, store.SessionLog(app, agent.SessionID(id)), acks); err != nil {
			return o, err
		}
	}
	o.instances(ctx, s, turns)
	if err := s.Verify(ctx); err != nil {
		o.Verify = err.Error()
	}
	return o, nil
}

func (o *outcome) note(a ack, got string, err error) {
	switch {
	case err == nil && got == a.Data:
		o.Right++
		return
	case err == nil:
		o.Wrong++
	case agent.KindOf(err) == agent.NotFound:
		o.Lost++
	default: // an error that says so is no silence
		o.Reported++
		return
	}
	if o.Example == "" {
		o.Example = fmt.Sprintf("%s %s %d: %.80q, %v", a.What, a.ID, a.Seq, got, err)
	}
}

// events compares a log with its acks, and looks for events that are there twice.
func (o *outcome) events(ctx context.Context, s *store.Store, log store.Log, acks []ack) error {
	got := map[int64]string{}
	seen := map[string]bool{}
	var failed error
	for last := int64(0); ; {
		evs, err := s.Read(ctx, log, last, 0)
		if err != nil {
			failed = err
			break
		}
		if len(evs) == 0 {
			break
		}
		for _, e := range evs {
			if last++; e.Seq != last {
				return fmt.Errorf("%s: event %d stands at %d", log, e.Seq, last)
			}
			if e.Kind == agent.EventEmit && seen[string(e.Data)] {
				return fmt.Errorf("%s: event %d is there twice", log, e.Seq)
			}
			seen[string(e.Data)] = true
			got[e.Seq] = string(e.Data)
		}
	}
	for _, a := range acks {
		data, found := got[a.Seq]
		switch {
		case found:
			o.note(a, data, nil)
		case failed != nil: // the log as a whole says that it is damaged; each event is asked for by itself
			evs, err := s.Read(ctx, log, a.Seq-1, 1)
			if err == nil && len(evs) == 0 {
				err = agent.Errorf(agent.NotFound, "no event")
			}
			if err == nil {
				data = string(evs[0].Data)
			}
			o.note(a, data, err)
		default:
			o.note(a, "", agent.Errorf(agent.NotFound, "no event"))
		}
	}
	return nil
}

// silent reports whether something is lost or wrong that no read told of.
func (o outcome) silent() bool { return o.Lost+o.Wrong > 0 }

// damaged reports whether a read or Verify saw damage.
func (o outcome) damaged() bool { return o.Reported > 0 || o.Verify != "" || o.Refused != "" }

// checkChild checks a store in a process of its own, which damage may end, and prints the outcome.
func checkChild(t task) error {
	acks, err := readAcks(t.Check)
	if err != nil {
		return err
	}
	var o outcome
	s, err := open(t.Dir, t.Engine, -1)
	if err != nil {
		o.Refused = err.Error()
	} else {
		if o, err = check(s.Store, acks); err != nil {
			return err
		}
		s.close()
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

func writeAcks(path string, acks []ack) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, a := range acks {
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

func readAcks(path string) (acks []ack, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var a ack
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return nil, err
		}
		acks = append(acks, a)
	}
	return acks, nil
}
