//go:build !wasip1

package skep

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKV(t *testing.T) {
	host := &Fake{}
	var kv KV
	do := func(f func() (any, error), want any) {
		t.Helper()
		err := host.Call(func() int32 {
			return Do(func(struct{}) (struct{}, error) {
				got, err := f()
				if d := cmp.Diff(want, got); d != "" {
					t.Error(d)
				}
				return struct{}{}, err
			})
		}, nil, nil)
		if err != nil {
			t.Error(err)
		}
	}
	do(func() (any, error) { return kv.Get("none", new(string)) }, int64(0))
	do(func() (any, error) {
		return kv.Batch(KVSet("t", "text"), KVSet("b", []byte{255}), KVSet("j", pair{1, 2}))
	}, int64(1))
	do(func() (any, error) {
		var text string
		var raw []byte
		var p pair
		_, err := kv.Get("t", &text)
		_, err2 := kv.Get("b", &raw)
		_, err3 := kv.Get("j", &p)
		return []any{text, raw, p}, errors.Join(err, err2, err3)
	}, []any{"text", []byte{255}, pair{1, 2}})
	do(func() (any, error) { return kv.SetIf("t", 1, "other") }, int64(2))
	do(func() (any, error) {
		var e *CallError
		_, err := kv.Batch(KVDelete("b"), KVCheck("t", 1))
		if !errors.As(err, &e) {
			return nil, err
		}
		return e.Kind, nil
	}, "conflict")
	do(func() (any, error) {
		entries, after, err := kv.List(KVRange{Start: "c", Reverse: true, Limit: 1})
		return []any{len(entries), entries[0].Key(), after}, err
	}, []any{1, "t", "t"})
	do(func() (any, error) {
		entries, after, err := kv.List(KVRange{Start: "c", Reverse: true, After: "t"})
		return []any{len(entries), entries[0].Key(), entries[0].Version(), after}, err
	}, []any{1, "j", int64(1), ""})
	do(func() (any, error) { return nil, kv.Delete("none") }, nil)
	do(func() (any, error) {
		_, err := kv.Set("f", func() {})
		return err != nil, nil
	}, true)
}
