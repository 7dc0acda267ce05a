// Package kvtest holds the tests that every kv.DB passes. An implementation's own test calls Run, and RunReopen when what
// it holds outlives it.
package kvtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/store/kv"
)

// Run tests empty databases that open returns.
func Run(t *testing.T, open func(t *testing.T) kv.DB) {
	for _, c := range []struct {
		name string
		test func(*testing.T, kv.DB)
	}{
		{"Get", testGet}, {"Scan", testScan}, {"ScanErrors", testScanErrors}, {"Atomic", testAtomic},
		{"SameKeyTwice", testSameKeyTwice}, {"Snapshot", testSnapshot}, {"Copies", testCopies}, {"ViewError", testViewError},
		{"Cancelled", testCancelled}, {"Close", testClose}, {"CloseWaits", testCloseWaits}, {"Limits", testLimits},
		{"Concurrent", testConcurrent}, {"Random", testRandom},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t)
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			c.test(t, db)
		})
	}
}

// RunReopen tests that what was applied is there when the database is opened anew. open is called several times with the
// same dir.
func RunReopen(t *testing.T, open func(t *testing.T, dir string) kv.DB) {
	dir := t.TempDir()
	model := Model{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		db := open(t, dir)
		compare(t, db, model)
		for range 20 {
			changes := RandomBatch(rng)
			apply(t, db, changes...)
			model.Apply(changes)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	db := open(t, dir)
	defer db.Close()
	compare(t, db, model)
}

func set(key, value string) kv.Change { return kv.Change{Key: []byte(key), Value: []byte(value)} }
func del(key string) kv.Change        { return kv.Change{Key: []byte(key), Delete: true} }

func apply(t *testing.T, db kv.DB, changes ...kv.Change) {
	t.Helper()
	if err := db.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
}

func view(t *testing.T, db kv.DB, fn func(r kv.Reader) error) {
	t.Helper()
	if err := db.View(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, r kv.Reader, key string) string {
	t.Helper()
	v, found, err := r.Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return "-"
	}
	return string(v)
}

func scan(t *testing.T, r kv.Reader, from, to []byte, reverse bool) []string {
	t.Helper()
	got := []string{}
	err := r.Scan(from, to, reverse, func(k, v []byte) error {
		got = append(got, string(k)+"="+string(v))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func testGet(t *testing.T, db kv.DB) {
	apply(t, db, set("a", "1"), set("empty", ""), set("b", "2"))
	apply(t, db, del("b"), del("never"))
	view(t, db, func(r kv.Reader) error {
		for key, want := range map[string]string{"a": "1", "empty": "", "b": "-", "never": "-", "aa": "-"} {
			if got := get(t, r, key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		return nil
	})
}

func testScan(t *testing.T, db kv.DB) {
	apply(t, db, set("a", "0"), set("p/", "1"), set("p/1", "2"), set("p/2", "3"), set("p/\xff", "4"), set("p0", "5"), set("q", "6"), set("\xff\xff", "7"))
	all := []string{"a=0", "p/=1", "p/1=2", "p/2=3", "p/\xff=4", "p0=5", "q=6", "\xff\xff=7"}
	for _, c := range []struct {
		name     string
		from, to []byte
		want     []string
	}{
		{"all", nil, nil, all},
		{"prefix", []byte("p/"), kv.PrefixEnd([]byte("p/")), all[1:5]},
		{"to is excluded", []byte("p/"), []byte("p/2"), all[1:3]},
		{"from is included", []byte("p/2"), []byte("z"), all[3:7]},
		{"between keys", []byte("p/11"), []byte("p/3"), all[3:4]},
		{"open end", []byte("q"), nil, all[6:]},
		{"nothing", []byte("r"), []byte("s"), []string{}},
		{"empty range", []byte("p/1"), []byte("p/1"), []string{}},
		{"range the wrong way round", []byte("q"), []byte("a"), []string{}},
		{"before the first", nil, []byte("a"), []string{}},
		{"to is a prefix of keys", []byte("a"), []byte("p/"), all[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			view(t, db, func(r kv.Reader) error {
				if diff := cmp.Diff(c.want, scan(t, r, c.from, c.to, false)); diff != "" {
					t.Errorf("forward (-want +got):\n%s", diff)
				}
				back := scan(t, r, c.from, c.to, true)
				slices.Reverse(back)
				if diff := cmp.Diff(c.want, back); diff != "" {
					t.Errorf("reverse (-want +got):\n%s", diff)
				}
				return nil
			})
		})
	}
}

func testScanErrors(t *testing.T, db kv.DB) {
	apply(t, db, set("a", ""), set("b", ""), set("c", ""))
	stop := errors.New("stop")
	view(t, db, func(r kv.Reader) error {
		n := 0
		err := r.Scan(nil, nil, false, func(_, _ []byte) error {
			if n++; n == 2 {
				return stop
			}
			return nil
		})
		if err != stop || n != 2 {
			t.Errorf("scan returned %v after %d keys, want %v after 2", err, n, stop)
		}
		// A get within a scan, and a scan within a scan.
		return r.Scan(nil, nil, false, func(k, _ []byte) error {
			if get(t, r, string(k)) != "" || len(scan(t, r, k, nil, true)) == 0 {
				t.Errorf("%q is not seen within a scan", k)
			}
			return nil
		})
	})
}

func testAtomic(t *testing.T, db kv.DB) {
	apply(t, db, set("a", "1"), set("b", "1"))
	apply(t, db, set("a", "2"), del("b"), set("c", "2"))
	apply(t, db)
	view(t, db, func(r kv.Reader) error {
		if diff := cmp.Diff([]string{"a=2", "c=2"}, scan(t, r, nil, nil, false)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func testSameKeyTwice(t *testing.T, db kv.DB) {
	apply(t, db, set("a", "1"), set("a", "2"), set("b", "1"), del("b"), del("c"), set("c", "3"))
	view(t, db, func(r kv.Reader) error {
		if diff := cmp.Diff([]string{"a=2", "c=3"}, scan(t, r, nil, nil, false)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func testSnapshot(t *testing.T, db kv.DB) {
	apply(t, db, set("a", "1"), set("gone", "1"))
	view(t, db, func(r kv.Reader) error {
		apply(t, db, set("a", "2"), set("new", "2"), del("gone"))
		if diff := cmp.Diff([]string{"a=1", "gone=1"}, scan(t, r, nil, nil, false)); diff != "" {
			t.Errorf("a snapshot moved (-want +got):\n%s", diff)
		}
		if got := get(t, r, "a") + get(t, r, "new"); got != "1-" {
			t.Errorf("a snapshot moved: %s", got)
		}
		return nil
	})
	view(t, db, func(r kv.Reader) error {
		if diff := cmp.Diff([]string{"a=2", "new=2"}, scan(t, r, nil, nil, false)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func testCopies(t *testing.T, db kv.DB) {
	c := set("key", "value")
	apply(t, db, c)
	copy(c.Key, "XXX")
	copy(c.Value, "XXXXX")
	var kept []byte
	view(t, db, func(r kv.Reader) (err error) {
		kept, _, err = r.Get([]byte("key"))
		return err
	})
	apply(t, db, set("key", "other"))
	if string(kept) != "value" {
		t.Errorf("a value that was read became %q", kept)
	}
	copy(kept, "XXXXX")
	view(t, db, func(r kv.Reader) error {
		if got := get(t, r, "key"); got != "other" {
			t.Errorf("stored value became %q", got)
		}
		return nil
	})
}

func testViewError(t *testing.T, db kv.DB) {
	want := errors.New("mine")
	if err := db.View(t.Context(), func(kv.Reader) error { return want }); err != want {
		t.Errorf("View returned %v, want fn's error as it is", err)
	}
}

func testCancelled(t *testing.T, db kv.DB) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := db.View(ctx, func(kv.Reader) error { t.Error("fn ran"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("View returned %v, want %v", err, context.Canceled)
	}
}

func testClose(t *testing.T, db kv.DB) {
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.View(t.Context(), func(kv.Reader) error { return nil }); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("View of a closed database returned %v", err)
	}
	if err := db.Apply(t.Context(), []kv.Change{set("a", "1")}); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("Apply to a closed database returned %v", err)
	}
}

func testCloseWaits(t *testing.T, db kv.DB) {
	apply(t, db, set("a", "1"))
	inside, leave, closed := make(chan struct{}), make(chan struct{}), make(chan error)
	viewed := make(chan string)
	go func() {
		var got string
		db.View(context.Background(), func(r kv.Reader) error {
			close(inside)
			<-leave
			v, _, err := r.Get([]byte("a"))
			got = string(v)
			return err
		})
		viewed <- got
	}()
	<-inside
	go func() { closed <- db.Close() }()
	// Closing shows in that new views are refused; the one inside goes on.
	for db.View(t.Context(), func(kv.Reader) error { return nil }) == nil {
	}
	select {
	case <-closed:
		t.Error("Close did not wait for a view")
	default:
	}
	close(leave)
	if got := <-viewed; got != "1" {
		t.Errorf("a view that Close waited for read %q", got)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func testLimits(t *testing.T, db kv.DB) {
	l, ok := db.(kv.Limits)
	if !ok {
		t.Skip("takes any batch")
	}
	size, changes := l.MaxBatch()
	if size == 0 && changes == 0 {
		t.Skip("takes any batch")
	}
	if size < 1<<20 || changes < 1000 {
		t.Fatalf("a batch of %d bytes and %d changes is too small to be of use", size, changes)
	}
	fill := func(n, valueSize int) (cs []kv.Change) {
		for i := range n {
			cs = append(cs, kv.Change{Key: fmt.Appendf(nil, "key%08d", i), Value: make([]byte, valueSize)})
		}
		return cs
	}
	const keySize = 11
	big := 64 << 10
	apply(t, db, fill(size/(big+keySize), big)...)
	many := min(changes, size/(keySize+1))
	apply(t, db, fill(many, 1)...)

	err := db.Apply(t.Context(), fill(4*size/big, big))
	if !errors.Is(err, kv.ErrTooBig) {
		t.Errorf("a batch far over the limit returned %v", err)
	}
	view(t, db, func(r kv.Reader) error {
		if got := get(t, r, "key00000000"); got != "\x00" {
			t.Errorf("a refused batch left %d bytes", len(got))
		}
		return nil
	})
}

func testConcurrent(t *testing.T, db kv.DB) {
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := db.View(context.Background(), func(r kv.Reader) error {
					a, _, err := r.Get([]byte("a"))
					if err != nil {
						return err
					}
					b, _, err := r.Get([]byte("b"))
					if string(a) != string(b) {
						t.Errorf("a is %q and b is %q in one snapshot", a, b)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 50 {
		v := fmt.Sprint(i)
		apply(t, db, set("a", v), set("b", v))
	}
	close(done)
	readers.Wait()
}

func testRandom(t *testing.T, db kv.DB) {
	rng := rand.New(rand.NewPCG(3, 4))
	model := Model{}
	for i := range 60 {
		changes := RandomBatch(rng)
		apply(t, db, changes...)
		model.Apply(changes)
		if i%10 == 9 {
			compare(t, db, model)
		}
	}
}
