package ledger_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/ledger"
)

func size(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

// However much of its last record a crash has left, the ones before are there, the part is cut off with a line in the log, and
// what follows is appended in its place.
func TestTornTail(t *testing.T) {
	r := newRig(t, ledger.Options{})
	r.add(call(noon, "a", 1), call(noon, "a", 2))
	whole := size(t, r.newest())
	r.add(call(noon, "a", 3))
	full, err := os.ReadFile(r.newest())
	if err != nil {
		t.Fatal(err)
	}
	want := int64(2)
	for keep := whole; keep < len(full); keep++ {
		edit(t, r.newest(), func([]byte) []byte { return full[:keep] })
		r.crash(ledger.Options{})
		if got := len(r.all()); got != int(want) {
			t.Fatalf("%d bytes of the last record: %d events", keep-whole, got)
		}
		if torn := strings.Contains(string(r.log.b), "cut off"); torn != (keep > whole) {
			t.Errorf("%d bytes of the last record: log is %q", keep-whole, r.log.b)
		}
	}
	// What a write that failed has left over is not taken for a record either.
	edit(t, r.newest(), func([]byte) []byte { return append(full[:whole:whole], full[whole-1:]...) })
	r.crash(ledger.Options{})
	r.add(call(noon, "b", 4))
	r.crash(ledger.Options{})
	if n := r.count(); n != want+1 {
		t.Errorf("%d events count", n)
	}
}

// A crash at the very making of a segment leaves a file that is empty or has a part of a header.
func TestTornHeader(t *testing.T) {
	for _, keep := range []int{0, 1, 31} {
		r := newRig(t, ledger.Options{})
		edit(t, r.newest(), func(b []byte) []byte { return b[:keep] })
		r.crash(ledger.Options{})
		r.add(call(noon, "a", 1))
		r.crash(ledger.Options{})
		if n := r.count(); n != 1 {
			t.Errorf("%d bytes of a header: %d events count", keep, n)
		}
	}
}

// A bit that flips in what was on disk is never served: opening the ledger, reading the events or folding them is an error
// that names the file, and doctor's examination has it.
func TestFlippedBit(t *testing.T) {
	r := newRig(t, ledger.Options{})
	r.add(call(noon, "a", 1), call(noon, "b", 2), call(noon, "c", 3))
	synced := size(t, r.newest())
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	r.add(call(noon, "d", 4))
	whole, err := os.ReadFile(r.newest())
	if err != nil {
		t.Fatal(err)
	}
	for i := range synced {
		edit(t, r.newest(), func([]byte) []byte {
			b := append([]byte(nil), whole...)
			b[i] ^= 1 << (i % 8)
			return b
		})
		if 28 <= i && i < 32 { // padding of the header
			continue
		}
		r.st.Close()
		err := r.tryOpen(ledger.Options{})
		if _, bad := errors.AsType[*store.CorruptError](err); !bad || !strings.Contains(err.Error(), ".usage") {
			t.Fatalf("bit %d of byte %d: opened with %v", i%8, i, err)
		}
		found, err := ledger.Examine(t.Context(), r.st, r.dir)
		if err != nil || len(found.Damaged) != 1 {
			t.Errorf("byte %d: examined: %+v, %v", i, found, err)
		}
	}
	edit(t, r.newest(), func([]byte) []byte { return whole })
	r.crash(ledger.Options{})
	if n := r.count(); n != 4 {
		t.Errorf("%d events count", n)
	}
}

// What was rolled up was on disk, so a segment that ends before is damaged, and not torn.
func TestShortSegment(t *testing.T) {
	r := newRig(t, ledger.Options{})
	r.add(call(noon, "a", 1), call(noon, "b", 2))
	r.fold()
	edit(t, r.newest(), func(b []byte) []byte { return b[:70] })
	r.st.Close()
	err := r.tryOpen(ledger.Options{})
	wantKind(t, err, agent.Internal)
	if found, err := ledger.Examine(t.Context(), r.st, r.dir); err != nil || len(found.Damaged) != 1 {
		t.Errorf("examined: %+v, %v", found, err)
	}
}

// An ended segment that has lost its end, or events, is damaged: what is rolled up already stays, detail is refused.
func TestDamagedOldSegment(t *testing.T) {
	o := ledger.Options{Segment: 500}
	for _, cut := range []int{1, 33, 34, 120} {
		r := newRig(t, o)
		for i := range 20 {
			r.add(call(noon, "a", i))
		}
		r.fold()
		edit(t, r.files()[0], func(b []byte) []byte { return b[:len(b)-cut] })
		r.crash(o)
		if n := r.count(); n != 20 {
			t.Errorf("%d events count", n)
		}
		found, err := ledger.Examine(t.Context(), r.st, r.dir)
		if err != nil || len(found.Damaged) != 1 {
			t.Errorf("cut by %d: examined: %+v, %v", cut, found, err)
		}
	}
	r := newRig(t, o)
	for i := range 20 {
		r.add(call(noon, "a", i))
	}
	edit(t, r.files()[1], func(b []byte) []byte { b[40] ^= 1; return b })
	wantKind(t, r.Fold(t.Context()), agent.Internal)
	_, err := r.Rows(t.Context(), ledger.Query{App: app, From: noon, To: noon})
	wantKind(t, err, agent.Internal)
	_, _, err = r.Events(t.Context(), ledger.Query{App: app, To: noon.Add(1)}, "", 100)
	wantKind(t, err, agent.Internal)
	if err := os.Remove(r.files()[1]); err != nil { // as doctor says
		t.Fatal(err)
	}
	r.crash(o)
	if n := r.count(); n >= 20 || n < 10 {
		t.Errorf("%d events count", n)
	}
	found, err := ledger.Examine(t.Context(), r.st, r.dir)
	if err != nil || len(found.Damaged) != 0 || len(found.Missing) != 1 || found.Missing[0] != 2 {
		t.Errorf("examined: %+v, %v", found, err)
	}
}

// A crash before, within or after any commit of a fold, and an outcome that nobody knows, count no event twice and lose none.
func TestFoldFaults(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, f := range []faultkv.Fault{
			{Err: faultkv.ErrFault}, {Err: faultkv.ErrFault, Took: true},
			{Err: faultkv.ErrFault, Crash: true}, {Err: faultkv.ErrFault, Took: true, Crash: true},
		} {
			t.Run(fmt.Sprintf("commit %d, took %t, crash %t", n, f.Took, f.Crash), func(t *testing.T) {
				o := ledger.Options{Segment: 2000, Keep: time.Hour}
				r := newRig(t, o)
				for i := range 30 {
					r.add(call(noon.AddDate(0, 0, i%3), string(rune('a'+i%5)), i))
				}
				applies := 0
				r.via = func(db kv.DB) kv.DB {
					return faultkv.New(db, func(op faultkv.Op) faultkv.Fault {
						if op.Kind == faultkv.Apply {
							if applies++; applies == n {
								return f
							}
						}
						return faultkv.Fault{}
					})
				}
				r.crash(o)
				for i := range 3 { // each with something new to fold
					r.add(call(noon, "z", 100+i))
					_ = r.Fold(t.Context())
				}
				r.via = func(db kv.DB) kv.DB { return db }
				r.crash(o)
				if err := r.Expire(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := r.count(); got != 33 {
					t.Errorf("%d events count", got)
				}
				r.fold()
				if err := r.Expire(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.crash(o)
				if got := r.count(); got != 33 || len(r.files()) != 1 {
					t.Errorf("at the end %d events count, in %d files", got, len(r.files()))
				}
				if err := r.st.Verify(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
