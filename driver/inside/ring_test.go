package inside

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/driver"
)

func said(item, text string) driver.Event {
	return driver.NewEvent("t", driver.TextDelta, driver.TextData{Item: item, Text: text})
}

// texts returns the texts of all events of r, one for each event.
func (r *ring) texts() []string {
	_, list := r.after(0)
	var out []string
	for _, e := range list {
		var d driver.TextData
		_ = e.Read(&d)
		out = append(out, d.Item+":"+d.Text)
	}
	return out
}

// Deltas of one text become at most twenty events in a second, the first of them at once; no letter is lost, and nothing overtakes them.
func TestDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(1 << 20)
		r.add(said("a", "first "))
		if s := fmt.Sprint(r.texts()); s != "[a:first ]" {
			t.Errorf("%s", s)
		}
		for i := range 1000 {
			r.add(said("a", fmt.Sprint(i, " ")))
			if i%2 == 0 {
				r.add(said("b", "x"))
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(deltaEvery)
		all := r.texts()
		var a string
		n := 0
		for _, s := range all {
			if text, ok := strings.CutPrefix(s, "a:"); ok {
				a += text
				n++
			}
		}
		if !strings.HasPrefix(a, "first 0 1 2 ") || !strings.HasSuffix(a, "998 999 ") || len(a) != 6+10*2+90*3+900*4 {
			t.Errorf("the text is %q", a)
		}
		if n < 18 || n > 22 || len(all)-n < 18 || len(all)-n > 22 {
			t.Errorf("two texts in a second are %d and %d events", n, len(all)-n)
		}
		before := r.newest()
		r.add(said("a", "then "))
		r.add(said("a", "held "))
		r.add(driver.NewEvent("t", driver.TurnEnded, nil))
		_, list := r.after(before)
		if len(list) != 3 || list[1].Type != driver.TextDelta || list[2].Type != driver.TurnEnded {
			t.Errorf("%v", list)
		}
	})
}

func TestLongDeltaIsManyEvents(t *testing.T) {
	r := newRing(1 << 20)
	long := strings.Repeat("ä\x00", 40_000)
	r.add(said("a", long))
	var got string
	_, list := r.after(0)
	for _, e := range list {
		var d driver.TextData
		_ = e.Read(&d)
		if e.Cut || len(e.Data) > driver.MaxEvent {
			t.Errorf("an event of %d bytes, cut %v", len(e.Data), e.Cut)
		}
		got += d.Text
	}
	if got != long {
		t.Errorf("%d bytes became %d", len(long), len(got))
	}
}

// Who adds to a full ring waits until there is room, or nobody will make any.
func TestFullRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(10 * eventCost)
		added := 0
		go func() {
			for range 100 {
				r.add(driver.Event{Type: "x"})
				added++
			}
		}()
		synctest.Wait()
		if added != 11 {
			t.Errorf("%d events fit", added)
		}
		if !r.ack(5) || r.ack(50) {
			t.Error("what can be acknowledged is what there is")
		}
		synctest.Wait()
		if added != 16 || r.oldest() != 6 || r.newest() != 16 {
			t.Errorf("%d events, %d to %d", added, r.oldest(), r.newest())
		}
		first, list := r.after(7)
		if first != 8 || len(list) != 9 {
			t.Errorf("%d from %d", len(list), first)
		}
		r.abandon()
		synctest.Wait()
		if added != 100 {
			t.Errorf("%d", added)
		}
	})
}

func TestOOMCount(t *testing.T) {
	for text, want := range map[string]int64{
		"low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n": 2, // version 2, memory.events
		"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n":               7, // version 1, memory.oom_control
		"": 0, "oom_kill x\n": 0,
	} {
		if got := oomCount(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}
