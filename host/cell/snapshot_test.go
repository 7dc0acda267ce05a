package cell_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/internal/wasmtest"
)

func snapshot(t testing.TB, c *cell.Cell) []byte {
	t.Helper()
	b, err := c.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSnapshotBringsBackEverything writes at random, grows now and then, and compares memory and globals byte for byte.
func TestSnapshotBringsBackEverything(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), func(_ context.Context, c *cell.Cell) error {
			for at := range uint64(3000) {
				if _, err := c.Call("store", 7*at, at); err != nil {
					return err
				}
			}
			return nil
		})
		rnd := rand.New(rand.NewPCG(1, 2))
		for n := range 60 {
			c := open(t, img, cell.Env{})
			if n%3 == 0 {
				call(t, c, "grow", uint64(rnd.IntN(20)))
			}
			for range rnd.IntN(2000) {
				call(t, c, "store", uint64(rnd.IntN(len(c.Memory()))), uint64(rnd.IntN(3)))
			}
			for range n {
				call(t, c, "count")
			}
			want := bytes.Clone(c.Memory())
			s := snapshot(t, c)
			if again := snapshot(t, c); !bytes.Equal(s, again) {
				t.Fatal("two snapshots of one state differ")
			}
			c.Close()
			back, err := img.Restore(t.Context(), cell.Env{}, s)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(back.Memory(), want) {
				t.Fatalf("cell %d comes back with other memory", n)
			}
			if again := snapshot(t, back); !bytes.Equal(s, again) {
				t.Error("the snapshot of a restored cell is another")
			}
			if got := call(t, back, "count"); got != uint64(n+1) {
				t.Errorf("the global came back as %d, want %d", got-1, n)
			}
			back.Close()
		}
	})
}

// TestSnapshotOfTheSameImageElsewhere restores in an engine that made its image by itself, and backs it the other way.
func TestSnapshotOfTheSameImageElsewhere(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		c := open(t, image(t, e, kit(), nil), cell.Env{})
		call(t, c, "store", 9, 9)
		s := snapshot(t, c)
		c.Close()
		for _, copying := range []bool{false, true} {
			other, err := cell.New(t.Context(), []cell.Func{asks}, &cell.Options{Copy: copying})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close(context.Background()) })
			back, err := image(t, other, kit(), nil).Restore(t.Context(), cell.Env{}, s)
			if err != nil {
				t.Fatal(err)
			}
			if call(t, back, "load", 9) != 9 {
				t.Error("it came back without what was written")
			}
			back.Close()
		}
	})
}

func TestSnapshotsOfOthersAreRefused(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		mine := image(t, e, kit(), nil)
		m := kit()
		m.Data[0].Bytes = []byte("Data")
		c := open(t, image(t, e, m, nil), cell.Env{})
		s := snapshot(t, c)
		c.Close()
		_, err := mine.Restore(t.Context(), cell.Env{}, s)
		if agent.KindOf(err) != agent.Conflict || strings.Count(err.Error(), "sha256:") != 2 {
			t.Error(err)
		}
		other := image(t, e, kit(), func(_ context.Context, c *cell.Cell) error { _, err := c.Call("count"); return err })
		if _, err := other.Restore(t.Context(), cell.Env{}, snapshot(t, open(t, mine, cell.Env{}))); agent.KindOf(err) != agent.Conflict {
			t.Error("the same memory with another global:", err)
		}
	})
}

func TestSnapshotNeedsAnImage(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		m := kit()
		m.Table = pages(2, 2)
		m.Types = append(m.Types, wasmtest.Type{})
		m.Funcs = append(m.Funcs, wasmtest.Func{Type: 0, Body: code(i32c(0), 0xd2, 1, 0x26, 0), Export: "set"})
		m.Elems = []int{1}
		c := open(t, image(t, e, m, nil), cell.Env{})
		defer c.Close()
		if _, err := c.Snapshot(); agent.KindOf(err) != agent.Invalid {
			t.Error(err)
		}
	})
}

// sign gives a snapshot the checksum that it should have.
func sign(b []byte) []byte {
	body := bytes.Clone(b[:max(0, len(b)-sha256.Size)])
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

// written is a snapshot of which a test chooses the parts behind the image's digest.
func written(good []byte, size uint64, pages []uint64, chunks ...[]byte) []byte {
	const head = 8 + 1 + sha256.Size
	b := bytes.Clone(good[:head])
	b = binary.AppendUvarint(b, size)
	b = append(binary.AppendUvarint(b, 1), make([]byte, 8)...)
	b = binary.AppendUvarint(b, uint64(len(pages)))
	for _, p := range pages {
		b = binary.AppendUvarint(b, p)
	}
	for _, c := range chunks {
		b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
	}
	return sign(append(b, make([]byte, sha256.Size)...))
}

// cut is a snapshot that has only tail behind the image's digest.
func cut(good []byte, tail ...byte) []byte {
	const head = 8 + 1 + sha256.Size
	return sign(append(append(bytes.Clone(good[:head]), tail...), make([]byte, sha256.Size)...))
}

func packed(t testing.TB, b []byte) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(b, nil)
}

func TestHostileSnapshots(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		c := open(t, img, cell.Env{})
		call(t, c, "store", 1, 1)
		call(t, c, "store", 100_000, 1)
		good := snapshot(t, c)
		c.Close()
		for bit := range len(good) * 8 {
			bad := bytes.Clone(good)
			bad[bit/8] ^= 1 << (bit % 8)
			if _, err := img.Restore(t.Context(), cell.Env{}, bad); err == nil {
				t.Fatalf("bit %d flipped, and nobody saw it", bit)
			}
		}
		for n := range good {
			if _, err := img.Restore(t.Context(), cell.Env{}, good[:n]); agent.KindOf(err) != agent.Invalid {
				t.Fatalf("%d of %d bytes: %v", n, len(good), err)
			}
		}
		page := packed(t, make([]byte, 4096))
		bomb := packed(t, make([]byte, 64<<20))
		for name, b := range map[string][]byte{
			"a page past the end":      written(good, 2, []uint64{32 << 1}, page),
			"far past the end":         written(good, 2, []uint64{1 << 40}, page),
			"the same page twice":      written(good, 2, []uint64{3 << 1, 0}, packed(t, make([]byte, 8192))),
			"more pages than content":  written(good, 2, []uint64{2, 2}, page),
			"more content than pages":  written(good, 2, []uint64{2}, packed(t, make([]byte, 8192))),
			"a chunk too many":         written(good, 2, []uint64{2}, page, page),
			"no content":               written(good, 2, []uint64{2}),
			"content that is none":     written(good, 2, []uint64{2}, []byte("not compressed")),
			"a bomb":                   written(good, 2, []uint64{2}, bomb),
			"smaller than its image":   written(good, 1, nil),
			"larger than any memory":   written(good, 1<<20, nil),
			"more pages than it has":   cut(good, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x7f),
			"more globals than it has": cut(good, 2, 0xff, 0xff, 0x7f),
		} {
			if c, err := img.Restore(t.Context(), cell.Env{}, b); agent.KindOf(err) != agent.Invalid {
				t.Errorf("%s: %v", name, err)
				if err == nil {
					c.Close()
				}
			}
		}
		fine, err := img.Restore(t.Context(), cell.Env{}, written(good, 2, []uint64{3 << 1}, page))
		if err != nil {
			t.Fatal("what the others were made like is not refused for something else:", err)
		}
		fine.Close()
	})
}

func TestSnapshotLimits(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		img := image(t, e, kit(), nil)
		c := open(t, img, cell.Env{})
		call(t, c, "grow", 8)
		s := snapshot(t, c)
		c.Close()
		at := cell.Env{Limits: agent.Limits{Memory: 10 << 16}}
		back, err := img.Restore(t.Context(), at, s)
		if err != nil {
			t.Fatal("at the limit:", err)
		}
		if got := call(t, back, "grow", 1); uint32(got) != 1<<32-1 {
			t.Error("it grew past the limit")
		}
		back.Close()
		at.Limits.Memory--
		if _, err := img.Restore(t.Context(), at, s); agent.AsError(err) == nil || agent.AsError(err).Limit != agent.LimitMemory {
			t.Error("past the limit:", err)
		}
	})
}

// TestRestoredCellsCount: what a restored cell grows by is taken from what all cells may have, and given back.
func TestRestoredCellsCount(t *testing.T) {
	for name, copying := range map[string]bool{"mapped": false, "copied": true} {
		t.Run(name, func(t *testing.T) {
			e, err := cell.New(t.Context(), []cell.Func{asks}, &cell.Options{Copy: copying, Memory: 31 << 16, Pool: -1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close(context.Background()) })
			img := image(t, e, kit(), nil)
			c := open(t, img, cell.Env{})
			call(t, c, "grow", 8)
			s := snapshot(t, c)
			c.Close()
			for range 3 {
				var live []*cell.Cell
				for {
					c, err := img.Restore(t.Context(), cell.Env{}, s)
					if err != nil {
						if agent.KindOf(err) != agent.Exhausted && agent.KindOf(err) != agent.Unavailable {
							t.Error(err)
						}
						break
					}
					live = append(live, c)
				}
				if len(live) != 3 {
					t.Errorf("%d cells of 10 pages have room in 31", len(live))
				}
				for _, c := range live {
					c.Close()
				}
			}
		})
	}
}

// fuzzed is the image that fuzz targets restore snapshots in.
func fuzzed(f *testing.F) *cell.Image {
	e, err := cell.New(f.Context(), []cell.Func{asks}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = e.Close(context.Background()) })
	compiled, err := e.Compile(f.Context(), kit().Bytes(), "test")
	if err != nil {
		f.Fatal(err)
	}
	img, err := e.NewImage(f.Context(), compiled, cell.Env{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = img.Close() })
	return img
}

// FuzzImage: whatever comes, no panic and no more memory than the limit; what is imported is exported again.
func FuzzImage(f *testing.F) {
	img := fuzzed(f)
	good, err := img.Export()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:60])
	const most = 4 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		made, err := img.Import(sign(b), most)
		if err != nil {
			return
		}
		defer made.Close()
		if made.Size() > most {
			t.Fatalf("%d bytes of memory", made.Size())
		}
		again, err := made.Export()
		if err != nil {
			t.Fatal(err)
		}
		twice, err := img.Import(again, most)
		if err != nil {
			t.Fatal(err)
		}
		defer twice.Close()
		if one, two := digest(t, made), digest(t, twice); one != two {
			t.Fatalf("%s was imported as %s", one, two)
		}
	})
}

func digest(t testing.TB, i *cell.Image) agent.Digest {
	t.Helper()
	d, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestImportedImages: snapshots of an image go on in the one that was exported and imported, beside another of the same code.
func TestImportedImages(t *testing.T) {
	both(t, func(t *testing.T, e *cell.Engine) {
		compiled, err := e.Compile(t.Context(), kit().Bytes(), "test")
		if err != nil {
			t.Fatal(err)
		}
		made := func(n uint64) *cell.Image {
			i, err := e.NewImage(t.Context(), compiled, cell.Env{}, func(_ context.Context, c *cell.Cell) error {
				_, err := c.Call("store", 66_000, n)
				_, grew := c.Call("grow", n)
				return errors.Join(err, grew)
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = i.Close() })
			return i
		}
		old, newer := made(3), made(1)
		c := open(t, old, cell.Env{})
		call(t, c, "store", 1, 7)
		s, want := snapshot(t, c), bytes.Clone(c.Memory())
		c.Close()
		exported, err := old.Export()
		if err != nil {
			t.Fatal(err)
		}
		again, err := newer.Import(exported, 5<<16)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = again.Close() })
		if digest(t, again) != digest(t, old) || digest(t, old) == digest(t, newer) {
			t.Error("its digest is not what it was")
		}
		for range 2 {
			back, err := again.Restore(t.Context(), cell.Env{}, s)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(back.Memory(), want) {
				t.Error("it came back with other memory")
			}
			back.Close()
		}
		if _, err := newer.Import(exported, 5<<16-1); agent.AsError(err) == nil || agent.AsError(err).Limit != agent.LimitMemory {
			t.Error("past the limit:", err)
		}
		if _, err := newer.Import(s, 5<<16); agent.KindOf(err) != agent.Invalid {
			t.Error("a snapshot is no image:", err)
		}
		other := kit()
		other.Funcs = other.Funcs[:len(other.Funcs)-1]
		if _, err := image(t, e, other, nil).Import(exported, 5<<16); agent.KindOf(err) != agent.Conflict {
			t.Error("of other code:", err)
		}
	})
}

// FuzzSnapshot: whatever comes, no panic, no more memory than the limit, and what is restored is what the snapshot says.
func FuzzSnapshot(f *testing.F) {
	img := fuzzed(f)
	c, err := img.Cell(f.Context(), cell.Env{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(snapshot(f, c))
	for _, at := range []uint64{0, 5000, 130_000} {
		if _, err := c.Call("store", at, 1); err != nil {
			f.Fatal(err)
		}
		f.Add(snapshot(f, c))
	}
	if _, err := c.Call("grow", 3); err != nil {
		f.Fatal(err)
	}
	f.Add(snapshot(f, c))
	f.Add(written(snapshot(f, c), 2, []uint64{3 << 1}, packed(f, make([]byte, 64<<20))))
	c.Close()
	const most = 4 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := img.Restore(t.Context(), cell.Env{Limits: agent.Limits{Memory: most}}, sign(b))
		runtime.ReadMemStats(&after)
		if got, room := after.TotalAlloc-before.TotalAlloc, uint64(most+16<<20+32*len(b)); got > room {
			t.Fatalf("%d bytes were allocated for a snapshot of %d", got, len(b))
		}
		if err != nil {
			return
		}
		defer c.Close()
		if len(c.Memory()) > most {
			t.Fatalf("%d bytes of memory", len(c.Memory()))
		}
		s := snapshot(t, c)
		back, err := img.Restore(t.Context(), cell.Env{}, s)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if !bytes.Equal(back.Memory(), c.Memory()) {
			t.Fatal("it came back with other memory")
		}
	})
}
