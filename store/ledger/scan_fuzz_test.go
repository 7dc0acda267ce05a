package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// FuzzScan reads a segment in which something was changed, and behind which something else stands: the records before that are read, and nothing that was not
// written is taken for one. Cursors are those that were given.
func FuzzScan(f *testing.F) {
	f.Add(uint8(5), uint16(0), byte(0), []byte{}, "AAAAAAAAAAE")
	f.Add(uint8(5), uint16(70), byte(1), []byte("\x09\x00\x00\x00"), cursor("a", store.UsageMark{Segment: 1, Offset: 64}))
	f.Add(uint8(2), uint16(3), byte(0xff), appendSync(nil, 900), "")
	file, err := os.Create(filepath.Join(f.TempDir(), "segment"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = file.Close() })
	const segment = 3
	f.Fuzz(func(t *testing.T, count uint8, at uint16, change byte, tail []byte, page string) {
		if m, err := parseCursor("a", page); err == nil && cursor("a", m) != page {
			t.Fatalf("the cursor %q is of %+v", page, m)
		}
		text := header(segment, time.Unix(1, 0))
		var want []record
		var ends []int64
		for i := range int(count % 8) {
			var b []byte
			if i%3 == 2 {
				b = appendSync(nil, int64(len(text)))
			} else {
				b = appendEvent(nil, recordEvent, &agent.UsageEvent{
					Time: time.Unix(int64(i), 0).UTC(), Kind: agent.UseRun, App: "a", Agent: string(tail[:min(len(tail), 9)]), Outcome: agent.Succeeded,
				})
			}
			place(b, segment, int64(len(text)))
			r, err := decode(b[recordHead:])
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, b...)
			want, ends = append(want, r), append(ends, int64(len(text)))
		}
		written := int64(len(text))
		text = append(text, tail...)
		good := written // how far nothing was changed
		if i := headerSize + int64(at); change != 0 && i < int64(len(text)) {
			text[i] ^= change
			good = min(good, i)
		}
		if err := errors.Join(file.Truncate(0), write(file, text)); err != nil {
			t.Fatal(err)
		}
		var got []record
		stopped, err := scan(file, segment, headerSize, int64(len(text)), func(_ int64, r record) error {
			got = append(got, r)
			return nil
		})
		sure := 0
		for sure < len(ends) && ends[sure] <= good {
			sure++
		}
		if len(got) < sure || sure > 0 && !reflect.DeepEqual(got[:sure], want[:sure]) {
			t.Fatalf("%d records are read, of which %d were not touched", len(got), sure)
		}
		if stopped < headerSize || stopped > int64(len(text)) || (err == nil) != (stopped == int64(len(text))) {
			t.Fatalf("it stopped at %d of %d, %v", stopped, len(text), err)
		}
		if good < written && (err == nil || len(got) != sure) {
			t.Fatalf("%d records are read, of which %d were not touched: %v", len(got), sure, err)
		}
		var damage *store.CorruptError
		if err != nil && !errors.Is(err, errTorn) && !errors.As(err, &damage) {
			t.Fatal(err)
		}
	})
}

func write(f *os.File, b []byte) error {
	_, err := f.WriteAt(b, 0)
	return err
}
