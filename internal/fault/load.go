package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/store/instance"
)

const app = agent.DefaultApp

const writers = 8

// opened is a store and its database.
type opened struct {
	*store.Store
	close func() error
}

func open(dir string, k engine.Kind, minFree int64) (*opened, error) {
	db, err := engine.Open(dir, k, &engine.Options{MinFree: -1})
	if err != nil {
		return nil, err
	}
	s, err := store.Open(context.Background(), db, dir, &store.Options{MinFree: minFree})
	if err != nil {
		db.Close()
		return nil, err
	}
	return &opened{s, func() error {
		err := s.Close()
		if cerr := db.Close(); err == nil {
			err = cerr
		}
		return err
	}}, nil
}

// prepare makes a store with one session for each writer, which is with the writer's instance.
func prepare(dir string, k engine.Kind) error {
	s, err := open(dir, k, -1)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "a"}, store.Once{}); err != nil {
		return err
	}
	for i := range writers {
		if _, _, err := s.CreateSession(ctx, agent.Session{App: app, Agent: "a", ID: session(i), Key: strconv.Itoa(i)}, store.Once{}); err != nil {
			return err
		}
	}
	return s.close()
}

func session(writer int) agent.SessionID {
	return agent.SessionID(fmt.Sprintf("01J0000000000000000000%04d", writer))
}

// task is what a writing process is to do. It is passed as JSON in the environment.
type task struct {
	Dir     string
	Engine  engine.Kind
	MinFree int64
	Commits int64  // after so many it waits; 0 means it never does
	Check   string // a file of acks to check the store against, instead of writing
}

const taskEnv = "SKEP_FAULT_TASK"

// runChild does the task of a child process and reports whether there was one.
func runChild() bool {
	spec := os.Getenv(taskEnv)
	if spec == "" {
		return false
	}
	var t task
	err := json.Unmarshal([]byte(spec), &t)
	switch {
	case err != nil:
	case t.Check != "":
		err = checkChild(t)
	default:
		err = write(t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	return true
}

// ack is one thing that the store has answered for.
type ack struct {
	What string // event, agent, going (about to be deleted), gone, run, turn, at (an instance as it was found); full, which is no ack
	ID   string // of a session, an agent or a run; key of an instance
	Seq  int64  // of an event or a turn
	Data string // of an event or an agent; digest of a run's input
}

// write commits from several goroutines and prints an ack for each commit. It ends, and closes the store, when its
// standard input does.
func write(t task) error {
	s, err := open(t.Dir, t.Engine, t.MinFree)
	if err != nil {
		return err
	}
	w := &writer{store: s.Store, left: t.Commits}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := w.acquire(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, writers)
	for i := range writers {
		all.Go(func() { failed <- w.run(ctx, i) })
	}
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(ended) }()
	select {
	case <-ended:
	case err = <-failed:
		if err == nil {
			<-ended
		}
	}
	cancel()
	all.Wait()
	if err != nil {
		return err
	}
	return s.close()
}

type writer struct {
	store  *store.Store
	left   int64
	n      atomic.Int64
	ids    [writers]instance.ID
	fences [writers]instance.Fence // each is its writer's own, as are the runs of their newest turns
	runs   [writers]agent.RunID
	mu     sync.Mutex // one line at a time
}

func (w *writer) print(a ack) {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	os.Stdout.Write(append(b, '\n'))
}

// run commits until there is nothing left to do. While the disk is full it tries again and again.
func (w *writer) run(ctx context.Context, i int) error {
	for n := 0; ctx.Err() == nil; n++ {
		if w.n.Add(1) > w.left && w.left > 0 {
			return nil
		}
		a, err := w.commit(ctx, i, n)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			w.print(a)
		case agent.KindOf(err) == agent.Unavailable && strings.Contains(err.Error(), "full"):
			w.print(ack{What: "full"})
			time.Sleep(20 * time.Millisecond)
		default:
			return err
		}
	}
	return nil
}

func (w *writer) commit(ctx context.Context, i, n int) (ack, error) {
	mark := fmt.Sprintf("%d-%d-%d", os.Getpid(), i, n)
	switch n % 20 {
	case 1, 2, 5, 6, 7, 12, 13, 17:
		return w.turn(ctx, i)
	case 3, 9:
		a := agent.Agent{App: app, Name: "a-" + mark, Description: strings.Repeat(mark+" ", 20)}
		_, _, err := w.store.CreateAgent(ctx, a, store.Once{})
		return ack{What: "agent", ID: a.Name, Data: a.Description}, err
	case 10: // the one of a moment ago
		name := fmt.Sprintf("a-%d-%d-%d", os.Getpid(), i, n-1)
		w.print(ack{What: "going", ID: name})
		err := w.store.DeleteAgents(ctx, app, name)
		if agent.KindOf(err) == agent.NotFound && err != nil { // it could not be made, the disk was full
			err = nil
		}
		return ack{What: "gone", ID: name}, err
	case 15:
		body := []byte(strings.Repeat(mark, 100_000/len(mark)+1)) // a blob
		run, _, _, err := w.store.CreateRun(ctx, store.NewRun{Run: agent.Run{
			App: app, Agent: "a", Session: session(i), Input: agent.Payload{Type: agent.TypeText, Body: body},
		}}, store.Once{})
		return ack{What: "run", ID: string(run.ID), Data: string(agent.DigestOf(body))}, err
	}
	data, err := json.Marshal(strings.Repeat(mark+".", 30))
	if err != nil {
		return ack{}, err
	}
	evs, err := w.store.Append(ctx, store.SessionLog(app, session(i)), []agent.Event{{Kind: agent.EventEmit, Data: data}})
	if err != nil {
		return ack{}, err
	}
	return ack{What: "event", ID: string(session(i)), Seq: evs[0].Seq, Data: string(data)}, nil
}
