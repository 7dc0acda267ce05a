package store_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// A head that an earlier Skep wrote, all of it JSON, is read, and its newest batch is known; the next commit writes it anew.
func TestFirstInstanceHead(t *testing.T) {
	ctx, db := t.Context(), memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	in := s.Instances()
	id := instance.ID{App: app, Agent: addAgent(t, s, "a").ID, Key: "k"}
	parent := instance.ID{App: app, Agent: id.Agent, Key: "parent"}
	f := must(in.Acquire(ctx, parent, instance.ID{}))(t).Fence
	must(in.Commit(ctx, parent, f, &instance.Batch{ID: instance.NewBatchID(), Children: []instance.Child{{ID: id}}}))(t)
	f = must(in.Acquire(ctx, id, parent))(t).Fence
	b := withRun(turnOf(id, 1), id, 1)
	b.Snapshot = &instance.Snapshot{Data: []byte("s")}
	res := must(in.Commit(ctx, id, f, b))(t)
	want := must(in.Info(ctx, id))(t)
	k := store.Key("inst/default/" + string(id.Agent) + "/k")
	first := fmt.Sprintf(`{"epoch":1,"head":1,"birth":1,"parent":{"agent":%q,"key":"parent"},"created":%q,"updated":%q,`+
		`"ends":{"e":[1,1],"j":[1],"o":[4294967297]},"logs":2,"log_bytes":%d,"alarms":1,"outbox":1,"marks":1,"snapshot":{"data":"cw=="}}`,
		id.Agent, want.Created.Format(time.RFC3339Nano), want.Updated.Format(time.RFC3339Nano), want.LogBytes)
	apply(t, db, kv.Change{Key: []byte(k), Value: store.Seal(k, store.FirstHead([]byte(first), b.ID))})
	if d := cmp.Diff(want, must(in.Info(ctx, id))(t), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
	if again := must(in.Commit(ctx, id, res.Fence, b))(t); !cmp.Equal(again, res) {
		t.Errorf("sent again: %+v, want %+v", again, res)
	}
	must(in.Commit(ctx, id, res.Fence, withRun(turnOf(id, 2), id, 2)))(t)
	now := must(in.Info(ctx, id))(t)
	if now.Parent != parent || !now.Created.Equal(want.Created) || string(now.Snapshot.Data) != "s" || now.Fence.Head != 2 {
		t.Errorf("%+v", now)
	}
	if head := keys(t, db, string(k))[0].Value; bytes.Contains(head, []byte("log_bytes")) {
		t.Errorf("still all JSON: %q", head)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// Bytes are the head of an instance only if they are written as it would be, but for what was written first.
func FuzzInstanceHead(f *testing.F) {
	db := memkv.New()
	s := openStore(f, db, f.TempDir(), nil)
	id := instance.ID{App: app, Agent: addAgent(f, s, "a").ID, Key: "k"}
	at := must(s.Instances().Acquire(f.Context(), id, instance.ID{}))(f).Fence
	must(s.Instances().Commit(f.Context(), id, at, turnOf(id, 1)))(f)
	err := db.View(f.Context(), func(r kv.Reader) error {
		k := store.Key("inst/default/" + string(id.Agent) + "/k")
		v, _, err := r.Get([]byte(k))
		if err == nil {
			v, err = store.Unseal(k, v)
		}
		f.Add(v)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(store.FirstHead([]byte(`{"epoch":2,"head":1,"birth":1,"ends":{"e":[1]}}`), [16]byte{1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		once, err := store.Rehead(b)
		if err != nil {
			wantKind(t, err, agent.Internal)
			return
		}
		if twice, err := store.Rehead(once); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%q is read, written and then %q, %v", b, twice, err)
		}
	})
}
