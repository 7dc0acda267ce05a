package wasi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// TestAllOfPreview1 compares names and types with another implementation.
func TestAllOfPreview1(t *testing.T) {
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	defer func() { _ = r.Close(ctx) }()
	compiled, err := wasi_snapshot_preview1.NewBuilder(r).Compile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	type sig struct{ Params, Results string }
	want, got := map[string]sig{}, map[string]sig{}
	for name, f := range compiled.ExportedFunctions() {
		want[name] = sig{string(f.ParamTypes()), string(f.ResultTypes())}
	}
	for _, f := range wasi.Funcs() {
		got[f.Name] = sig{string(f.Params), string(f.Results)}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// guest keeps the state, as families of guests do.
type guest struct{ state wasi.State }

func (g *guest) WASI() *wasi.State { return &g.state }

func image(t *testing.T, wasm []byte) *cell.Image {
	t.Helper()
	eng, err := cell.New(t.Context(), wasi.Funcs(), nil)
	if err != nil {
		t.Fatal(err)
	}
	code, err := eng.Compile(t.Context(), wasm, wasi.Module)
	if err != nil {
		t.Fatal(err)
	}
	i, err := eng.NewImage(t.Context(), code, cell.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(i.Close(), code.Close(ctx), eng.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return i
}

// TestNothingAmbient runs a real program that tries to find anything of the machine.
func TestNothingAmbient(t *testing.T) {
	out := filepath.Join(t.TempDir(), "probe.wasm")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", out, "./testdata/probe")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	c, err := image(t, wasm).Cell(t.Context(), cell.Env{
		Now: func() time.Time { return time.Now().AddDate(100, 0, 0) },
		Log: func(l agent.LogLevel, s string) { got = append(got, l.String()+": "+s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g := &guest{}
	c.Guest = g
	_, err = c.Call("_start")
	var exit *cell.Exit
	if !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("%v, want exit status 3", err)
	}
	if err := c.Do(func() { g.state.Flush(c) }); err != nil {
		t.Error(err)
	}
	year := time.Now().UTC().AddDate(100, 0, 0).Format("2006")
	want := []string{"info: args 0 env 0"}
	for _, p := range []string{"/", ".", "/etc/passwd", "/dev/urandom", "/proc/self/environ"} {
		want = append(want, "info: open "+p+" failed", "info: stat "+p+" failed")
	}
	for _, what := range []string{"create", "mkdir", "rename", "symlink", "remove", "readdir", "dial"} {
		want = append(want, "info: "+what+" failed")
	}
	for fd := 3; fd < 8; fd++ {
		want = append(want, fmt.Sprintf("info: read %d: Bad file number", fd))
	}
	want = append(want, "info: stdin 0 <nil>", "info: seek failed", "info: stat stdout true <nil>", "info: slept true, year "+year,
		"warn: to stderr", "warn: ", "info: no newline", "warn: half a line")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// caller is a module whose export "f" calls one function with constants and returns its result, which must be an i32.
func caller(t *testing.T, name string, args ...int64) []byte {
	t.Helper()
	for _, f := range wasi.Funcs() {
		if f.Name != name {
			continue
		}
		var body []byte
		for i, p := range f.Params {
			if p == cell.I32 {
				body = append(body, w.I32Const(int32(args[i]))...)
			} else {
				body = append(body, w.I64Const(args[i])...)
			}
		}
		return w.Module{
			Types:   []w.Type{{Params: f.Params, Results: f.Results}, {Results: []byte{w.I32}}},
			Imports: []w.Import{{Module: wasi.Module, Name: name}},
			Memory:  w.Size(1, 1),
			Funcs:   []w.Func{{Type: 1, Export: "f", Body: w.Code(body, 0x10, 0)}},
		}.Bytes()
	}
	t.Fatalf("no function %s", name)
	return nil
}

// run calls a function in a cell whose memory begins with before, and returns its result and its memory.
func run(t *testing.T, env cell.Env, before []byte, name string, args ...int64) (uint64, []byte, error) {
	t.Helper()
	c, err := image(t, caller(t, name, args...)).Cell(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	copy(c.Memory(), before)
	errno, err := c.Call("f")
	return errno, bytes.Clone(c.Memory()), err
}

func TestRefusals(t *testing.T) {
	const badFD, invalid, pipe, notGiven = 8, 28, 70, 76
	for _, tc := range []struct {
		name string
		args []int64
		want uint64
	}{
		{"fd_prestat_get", []int64{3, 0}, badFD},
		{"fd_prestat_dir_name", []int64{3, 0, 8}, badFD},
		{"path_open", []int64{3, 0, 0, 1, 0, 0, 0, 0, 0}, badFD},
		{"path_open", []int64{0, 0, 0, 1, 0, 0, 0, 0, 0}, notGiven},
		{"path_symlink", []int64{0, 1, 3, 0, 1}, badFD},
		{"fd_read", []int64{1, 0, 0, 0}, badFD},
		{"fd_write", []int64{0, 0, 0, 0}, badFD},
		{"fd_write", []int64{1, 0, 1025, 0}, invalid},
		{"fd_seek", []int64{1, 0, 0, 0}, pipe},
		{"fd_close", []int64{2}, 0},
		{"fd_close", []int64{3}, badFD},
		{"sock_accept", []int64{3, 0, 0}, badFD},
		{"clock_time_get", []int64{4, 0, 0}, invalid},
		{"clock_res_get", []int64{9, 0}, invalid},
		{"poll_oneoff", []int64{0, 0, 0, 0}, invalid},
		{"poll_oneoff", []int64{0, 0, 1 << 30, 0}, invalid},
		{"sched_yield", nil, 0},
	} {
		if got, _, err := run(t, cell.Env{}, nil, tc.name, tc.args...); err != nil || got != tc.want {
			t.Errorf("%s%v = %d, %v; want %d", tc.name, tc.args, got, err, tc.want)
		}
	}
}

func TestBadPointersEndTheCell(t *testing.T) {
	for name, args := range map[string][]int64{
		"args_sizes_get": {0, 1 << 16}, "environ_sizes_get": {-1, 0}, "clock_time_get": {0, 0, 65530}, "clock_res_get": {1, -8},
		"fd_fdstat_get": {1, 65520}, "fd_filestat_get": {0, 65500}, "fd_read": {0, 0, 0, 65533}, "fd_write": {1, 65532, 1, 0},
		"poll_oneoff": {0, 65520, 1, 0}, "random_get": {65535, 2},
	} {
		_, _, err := run(t, cell.Env{}, nil, name, args...)
		if agent.KindOf(err) != agent.Failed || !strings.Contains(err.Error(), "outside of its memory") {
			t.Errorf("%s%v: %v", name, args, err)
		}
	}
}

func TestClocks(t *testing.T) {
	now := time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)
	env := cell.Env{Now: func() time.Time { return now }}
	for clock := range int64(4) {
		_, m, err := run(t, env, nil, "clock_time_get", clock, 1, 8)
		if got := int64(binary.LittleEndian.Uint64(m[8:])); err != nil || got != now.UnixNano() {
			t.Errorf("clock %d: %d, %v; want %d", clock, got, err, now.UnixNano())
		}
	}
}

// TestMonotonicClockNeverStepsBack reads twice within a cell whose time is set back between.
func TestMonotonicClockNeverStepsBack(t *testing.T) {
	now := time.Now()
	c, err := image(t, caller(t, "clock_time_get", 1, 1, 0)).Cell(t.Context(), cell.Env{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Guest = &guest{}
	var read [2]uint64
	for i := range read {
		if _, err := c.Call("f"); err != nil {
			t.Fatal(err)
		}
		read[i] = binary.LittleEndian.Uint64(c.Memory())
		now = now.Add(-time.Hour)
	}
	if read[1] < read[0] {
		t.Errorf("%d after %d", read[1], read[0])
	}
}

func TestRandom(t *testing.T) {
	_, m, err := run(t, cell.Env{Random: strings.NewReader("0123456789")}, nil, "random_get", 4, 6)
	if err != nil || string(m[:11]) != "\x00\x00\x00\x00012345\x00" {
		t.Errorf("%q, %v", m[:11], err)
	}
	_, _, err = run(t, cell.Env{Random: strings.NewReader("01")}, nil, "random_get", 4, 6)
	if agent.KindOf(err) != agent.Internal {
		t.Errorf("a source that ends: %v", err)
	}
}

// subscribe lays out a subscription.
func subscribe(userdata uint64, typ byte, id uint32, timeout time.Duration, absolute bool) []byte {
	b := make([]byte, 48)
	binary.LittleEndian.PutUint64(b, userdata)
	b[8] = typ
	binary.LittleEndian.PutUint32(b[16:], id)
	binary.LittleEndian.PutUint64(b[24:], uint64(timeout))
	if absolute {
		b[40] = 1
	}
	return b
}

func TestPoll(t *testing.T) {
	const clock, read, write = 0, 1, 2
	type event struct {
		User  uint64
		Errno uint16
		Type  byte
	}
	for _, tc := range []struct {
		name string
		subs [][]byte
		want []event
		wait time.Duration
	}{
		{"the first of two clocks", [][]byte{
			subscribe(1, clock, 1, time.Hour, false), subscribe(2, clock, 0, 2*time.Hour, false),
		}, []event{{1, 0, clock}}, time.Hour},
		{"an absolute clock", [][]byte{
			subscribe(1, clock, 0, time.Duration(time.Date(2000, 1, 1, 0, 0, 9, 0, time.UTC).UnixNano()), true),
		}, []event{{1, 0, clock}}, 9 * time.Second},
		{"a clock that has passed", [][]byte{subscribe(1, clock, 0, 5, true)}, []event{{1, 0, clock}}, 0},
		{"streams at once", [][]byte{
			subscribe(1, clock, 1, time.Hour, false), subscribe(2, read, 0, 0, false), subscribe(3, write, 2, 0, false),
		}, []event{{2, 0, read}, {3, 0, write}}, 0},
		{"what is not there", [][]byte{
			subscribe(1, read, 5, 0, false), subscribe(2, clock, 77, 0, false), subscribe(3, 9, 0, 0, false), subscribe(4, read, 1, 0, false),
		}, []event{{1, 8, read}, {2, 28, clock}, {3, 28, 9}, {4, 8, read}}, 0},
	} {
		i := image(t, caller(t, "poll_oneoff", 0, 1024, int64(len(tc.subs)), 4096))
		synctest.Test(t, func(t *testing.T) {
			c, err := i.Cell(t.Context(), cell.Env{Limits: agent.Limits{Wall: 10 * time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			copy(c.Memory(), bytes.Join(tc.subs, nil))
			began := time.Now()
			if errno, err := c.Call("f"); errno != 0 || err != nil {
				t.Fatalf("%s: %d, %v", tc.name, errno, err)
			}
			if d := time.Since(began); d != tc.wait {
				t.Errorf("%s: waited %v, want %v", tc.name, d, tc.wait)
			}
			var got []event
			for n := range c.U32(4096) {
				b := c.Memory()[1024+32*n:]
				got = append(got, event{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint16(b[8:]), b[10]})
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s: %s", tc.name, d)
			}
		})
	}
}

func TestWaitEndsWithTheCell(t *testing.T) {
	i := image(t, caller(t, "poll_oneoff", 0, 1024, 1, 4096))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := i.Cell(ctx, cell.Env{Limits: agent.Limits{Wall: time.Hour, CPU: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		copy(c.Memory(), subscribe(1, 0, 1, 24*time.Hour, false))
		began := time.Now()
		_, err = c.Call("f")
		if d := time.Since(began); agent.KindOf(err) != agent.Cancelled || d != time.Minute {
			t.Errorf("%v after %v, want it cancelled after a minute", err, d)
		}
		if cpu := c.Usage().CPU; cpu > time.Second {
			t.Errorf("waiting counted as %v of CPU time", cpu)
		}
	})
}
