package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// heldDB has written, and does not say so before it is let.
type heldDB struct {
	kv.DB
	written chan struct{} // nil: nothing is held
	let     chan error
}

func (db *heldDB) Apply(ctx context.Context, changes []kv.Change) error {
	err := db.DB.Apply(ctx, changes)
	if db.written == nil || err != nil {
		return err
	}
	db.written <- struct{}{}
	return <-db.let
}

// What one reader may have found in the database, no later one finds older in memory; and what is found there is what the database has.
func TestRecentIsNotOlder(t *testing.T) {
	db := &heldDB{DB: memkv.New()}
	s := openStore(t, db, t.TempDir(), nil)
	ctx, in := t.Context(), s.Instances()
	a := addAgent(t, s, "a")
	id := instance.ID{App: app, Agent: a.ID, Key: "k"}
	info, err := in.Acquire(ctx, id, instance.ID{})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(n int) error {
		b := instance.Batch{ID: instance.NewBatchID(), State: []agent.StateEdit{{Act: agent.StateSet, Key: "n", Value: agent.JSON(fmt.Append(nil, n))}}}
		r, err := in.Commit(ctx, id, info.Fence, &b)
		info.Fence = r.Fence
		return err
	}
	want := func(when string, n int) {
		t.Helper()
		got, err := in.Load(ctx, id, "n", "none", "n")
		if err != nil || len(got) != 2 || string(got[1].Value.Body) != fmt.Sprint(n) {
			t.Errorf("%s: %v, %v; want %d", when, got, err, n)
		}
		if got, err = in.Load(ctx, id, "n"); err != nil || len(got) != 1 || string(got[0].Value.Body) != fmt.Sprint(n) {
			t.Errorf("%s, alone: %v, %v; want %d", when, got, err, n)
		}
	}
	if err := commit(1); err != nil {
		t.Fatal(err)
	}
	want("after a commit", 1)
	db.written, db.let = make(chan struct{}), make(chan error)
	done := make(chan error)
	go func() { done <- commit(2) }()
	<-db.written
	want("while it is not known whether a commit was made, and it was", 2)
	db.let <- nil
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want("after that commit", 2)
	go func() { done <- commit(3) }()
	<-db.written
	db.let <- errors.New("the outcome is not known")
	if err := <-done; err != nil { // the commit number says that it was made
		t.Fatal(err)
	}
	want("after one of which the database did not say that it was made", 3)
}

// Memory does not answer who has given up, nor of a store that is closed.
func TestRecentIsClosed(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	a := addAgent(t, s, "a")
	id := instance.ID{App: app, Agent: a.ID, Key: "k"}
	info, err := s.Instances().Acquire(t.Context(), id, instance.ID{})
	if err != nil {
		t.Fatal(err)
	}
	b := instance.Batch{ID: instance.NewBatchID(), State: []agent.StateEdit{{Act: agent.StateSet, Key: "n", Value: agent.JSON([]byte("1"))}}}
	if _, err := s.Instances().Commit(t.Context(), id, info.Fence, &b); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Instances().Load(gone, id, "n"); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was cancelled: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Instances().Load(t.Context(), id, "n")
	wantKind(t, err, agent.Unavailable)
}
