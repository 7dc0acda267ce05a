//go:build !wasip1

package skep

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// run makes a run of f in host and returns its error.
func run(host *Fake, f func() error) error {
	host.Self.Run = "run-a"
	return host.Call(exported(f), nil, nil)
}

func exported(f func() error) func() int32 {
	return func() int32 { return Do(func(struct{}) (struct{}, error) { return struct{}{}, f() }) }
}

func TestStepRetries(t *testing.T) {
	host, tries := &Fake{}, 0
	var began time.Time
	err := run(host, func() error {
		began = Now()
		got, err := Step("flaky", &StepOptions[int]{Retry: Retry{Attempts: 5, Delay: time.Second, MaxDelay: 3 * time.Second}}, func() (int, error) {
			if tries++; tries < 5 {
				return tries, errors.New("not yet")
			}
			return 42, nil
		})
		if got != 42 {
			t.Errorf("the step returned %d", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := host.Now.Sub(began); took != (1+2+3+3)*time.Second {
		t.Errorf("it waited %v", took)
	}
	var marks []string
	for _, m := range host.Steps {
		marks = append(marks, fmt.Sprint(m.Name, m.Attempt, m.Error))
	}
	if want := []string{"flaky1not yet", "flaky2not yet", "flaky3not yet", "flaky4not yet", "flaky5"}; !slices.Equal(marks, want) {
		t.Errorf("marks are %q", marks)
	}
}

func TestStepGivesUp(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name  string
		run   string
		o     *StepOptions[int]
		fails error
		tries int
	}{
		{"after its attempts", "r", &StepOptions[int]{Retry: Retry{Attempts: 2}}, broken, 2},
		{"after the default", "r", &StepOptions[int]{Retry: Retry{Delay: 1}}, broken, 6},
		{"without options", "r", nil, broken, 1},
		{"when it is permanent", "r", &StepOptions[int]{Retry: Retry{Attempts: 3}}, Permanent(fmt.Errorf("more: %w", broken)), 1},
		{"when the run is cancelled", "r", &StepOptions[int]{Retry: Retry{Attempts: 3}}, fmt.Errorf("%w: %w", broken, &CallError{Kind: "cancelled"}), 1},
		{"outside of a run", "", &StepOptions[int]{Retry: Retry{Attempts: 3}}, broken, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tries, host := 0, &Fake{Self: Identity{Run: tt.run}}
			var got error
			err := host.Call(exported(func() error {
				_, got = Step("s", tt.o, func() (int, error) { tries++; return 0, tt.fails })
				return got
			}), nil, nil)
			if err == nil || !strings.HasPrefix(err.Error(), `step "s": `) || !errors.Is(got, broken) || tries != tt.tries {
				t.Errorf("%v after %d attempts, want %d", err, tries, tt.tries)
			}
		})
	}
}

func TestStepsOfOneName(t *testing.T) {
	host := &Fake{}
	for range 2 {
		host.Steps = nil
		err := run(host, func() error {
			for range 3 {
				if _, err := Step[any]("mail", nil, func() (any, error) { return nil, nil }); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(host.Steps) != 3 || host.Steps[0].Name != "mail" || host.Steps[2].Name != "mail#3" {
			t.Errorf("%v, %+v", err, host.Steps)
		}
	}
}

func TestStepTimeout(t *testing.T) {
	host, tries := &Fake{}, 0
	err := run(host, func() error {
		_, err := Step("slow", &StepOptions[string]{Timeout: time.Minute, Retry: Retry{Attempts: 2}}, func() (string, error) {
			tries++
			return "late", Sleep(time.Minute + time.Second)
		})
		if !errors.Is(err, ErrTimedOut) {
			t.Errorf("got %v", err)
		}
		_, err = Step("quick", &StepOptions[string]{Timeout: time.Minute}, func() (string, error) { return "", Sleep(time.Minute) })
		return err
	})
	if err != nil || tries != 2 {
		t.Errorf("%v after %d attempts", err, tries)
	}
}

func TestRollbacks(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func() error
		want []string
		err  string
	}{
		{"not when it works", func() error { return nil }, nil, ""},
		{"in reverse", func() error { return errors.New("no stock") }, []string{"c", "b", "b", "a"}, "no stock"},
		{"after a panic", func() error { panic("oh") }, []string{"c", "b", "b", "a"}, "panic: oh"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var undone []string
			host := &Fake{}
			step := func(name string, fail func() error) error {
				_, err := Step(name, &StepOptions[string]{Retry: Retry{Attempts: 2}, Rollback: func(v string) error {
					undone = append(undone, v)
					return fail()
				}}, func() (string, error) { return name, nil })
				return err
			}
			fine := func() error { return nil }
			err := run(host, func() error {
				bad := func() error { return errors.New("stuck") }
				if err := errors.Join(step("a", fine), step("b", bad), step("c", func() error { panic("c") })); err != nil {
					return err
				}
				_, _ = Step("d", &StepOptions[int]{Retry: Retry{Attempts: 1}, Rollback: func(int) error { t.Error("d had failed"); return nil }},
					func() (int, error) { return 0, errors.New("d") })
				return tt.end()
			})
			if !slices.Equal(undone, tt.want) {
				t.Errorf("undone: %v, want %v", undone, tt.want)
			}
			if tt.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != tt.err+"; rollback: panic: c; rollback: step \"b\": stuck" {
				t.Errorf("got %v", err)
			}
			last := host.Steps[len(host.Steps)-1]
			if !last.Rollback || last.Name != "a" || last.Error != "" {
				t.Errorf("the last mark is %+v", last)
			}
			// Nothing of it is left for the next call.
			if err := run(host, func() error { return errors.New("again") }); err.Error() != "again" {
				t.Error(err)
			}
		})
	}
}

func TestWaits(t *testing.T) {
	type verdict struct{ By string }
	host := &Fake{}
	host.Deliver("approval", verdict{"Ada"})
	host.Deliver("word", "yes")
	err := run(host, func() error {
		v, err := WaitForEvent[verdict]("approval", time.Hour)
		word, err2 := WaitForEvent[string]("word", 0)
		if v.By != "Ada" || word != "yes" {
			t.Errorf("got %v, %q", v, word)
		}
		began := Now()
		if _, late := WaitForEvent[verdict]("approval", time.Hour); !errors.Is(late, ErrTimedOut) {
			t.Errorf("got %v", late)
		}
		err3 := SleepUntil(began.Add(48 * time.Hour))
		if took := Now().Sub(began); took != 48*time.Hour {
			t.Errorf("it took %v", took)
		}
		if _, never := WaitForEvent[struct{}]("approval", 0); never == nil || !strings.Contains(never.Error(), "for ever") {
			t.Errorf("got %v", never)
		}
		return errors.Join(err, err2, err3)
	})
	if err != nil {
		t.Error(err)
	}
	host.Self.Run = ""
	if err := host.Call(exported(func() error { return Sleep(time.Second) }), nil, nil); err == nil || !strings.Contains(err.Error(), "only a run") {
		t.Errorf("a turn waits: %v", err)
	}
}

func TestRuns(t *testing.T) {
	host := &Fake{AnswerInstance: func(agent, key, method string, in []byte) ([]byte, error) {
		if method == "fails" {
			return nil, errors.New("no luck")
		}
		return fmt.Appendf(nil, "%s/%s.%s(%s)", agent, key, method, in), nil
	}}
	err := run(host, func() error {
		own, err := StartRun("report", "in", nil)
		other, err2 := StartRun("fails", nil, &StartOptions{Agent: "printer", Key: "p1"})
		var got string
		err3 := own.Result(&got)
		if got != "test/test.report(in)" || own.ID == other.ID {
			t.Errorf("got %q of %v and %v", got, own, other)
		}
		if err := other.Result(nil); err == nil || err.Error() != "no luck" {
			t.Errorf("got %v", err)
		}
		return errors.Join(err, err2, err3)
	})
	if err != nil || len(host.Runs) != 2 || host.Runs[1].Key != "p1" {
		t.Errorf("%v, %v", err, host.Runs)
	}
}

func TestReplay(t *testing.T) {
	host, change := &Fake{}, ""
	f := exported(func() error {
		n := Rand().IntN(1000)
		for i := range 3 {
			if _, err := Storage.Set(fmt.Sprint("k", i), n); err != nil {
				return err
			}
		}
		if change == "ends" {
			return nil
		}
		if err := Batch(&Call{Agent: "a", Function: "f", In: change == "asks", Send: true}); err != nil {
			return err
		}
		if change == "fails" {
			return errors.New("other")
		}
		if err := Emit("done", Now()); change != "goes on" {
			return err
		}
		return Emit("more", nil)
	})
	if err := host.Call(f, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ change, want string }{
		{"", ""},
		{"ends", "it ended after 3 calls, where it made batch"},
		{"asks", "call 4 is batch"},
		{"fails", "it ended after 4 calls, where it made emit"},
		{"goes on", "call 6 is emit"},
		{"", ""},
	} {
		change = tt.change
		if err := host.Replay(f); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.change, err, tt.want)
		}
		if len(host.Events) != 1 || len(host.Messages) != 1 || host.Failed != "" {
			t.Errorf("%q: a replay does things again: %v, %v, %q", tt.change, host.Events, host.Messages, host.Failed)
		}
	}
}
