package inside_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
)

func TestExec(t *testing.T) {
	r := start(t)
	out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{
		ID: "1", Command: []string{"/bin/sh", "-c", "cat; echo $X >&2; exit 7"}, Env: map[string]string{"X": "y"}, Stdin: []byte("in"),
	})
	if out.Code != 7 || out.Stdout != "in" || out.Stderr != "y\n" {
		t.Errorf("%+v", out)
	}
	again := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "1", Command: []string{"echo another"}})
	if again.Stdout != "in" {
		t.Errorf("the same id again: %+v", again)
	}
	out = do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "2", Command: []string{"kill -KILL $$"}})
	if out.Code != -1 || out.Signal != "KILL" || out.OOM {
		t.Errorf("%+v", out)
	}
	r.fails(agent.NotFound, "no program nothing-such", driver.DoExec, driver.Exec{ID: "3", Command: []string{"nothing-such", "x"}})
	r.fails(agent.NotFound, "there is no folder", driver.DoExec, driver.Exec{ID: "3", Command: []string{"echo x"}, Dir: "nowhere"})
	r.fails(agent.Invalid, "an id", driver.DoExec, driver.Exec{Command: []string{"echo"}})
	out = do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "3", Command: []string{`printf '\377\000ä%0200000d' 1`}, Most: 1000})
	if out.Dropped < 190000 || len(out.Stdout) != 1000 {
		t.Errorf("%d bytes, %d dropped", len(out.Stdout), out.Dropped)
	}
	out = do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "4", Command: []string{`head -c 1000000 /dev/zero`}, Most: 1 << 30})
	if out.Dropped == 0 || len(out.Stdout) < 100_000 {
		t.Errorf("%d bytes, %d dropped", len(out.Stdout), out.Dropped)
	}
}

// What runs in a box ends before the driver when the box has no memory left.
func TestProgramsEndFirst(t *testing.T) {
	if _, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil {
		t.Skip("there is no such order here:", err)
	}
	r := start(t)
	out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{
		ID: "1", Timeout: time.Minute, Command: []string{"until [ $(cat /proc/$$/oom_score_adj) -ge 500 ]; do :; done; cat /proc/self/oom_score_adj"},
	})
	if n, err := strconv.Atoi(strings.TrimSpace(out.Stdout)); err != nil || n < 500 {
		t.Errorf("%+v", out)
	}
}

// When a program ends, or its time is up, nothing of its group is left; nobody waits for who holds its output.
func TestExecEndsItsGroup(t *testing.T) {
	r := start(t)
	out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "1", Command: []string{"sleep 1000 & echo $!"}})
	if out.Code != 0 {
		t.Errorf("%+v", out)
	}
	r.until("a child is left", func() bool { return gone(strings.TrimSpace(out.Stdout)) })
	out = do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "2", Command: []string{"trap '' TERM; echo $$; sleep 1000; sleep 1000"}, Timeout: 50 * time.Millisecond})
	if !out.TimedOut || out.Signal != "KILL" || !gone(strings.TrimSpace(out.Stdout)) {
		t.Errorf("%+v", out)
	}
}

func gone(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestBackground(t *testing.T) {
	r := start(t)
	out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "bg", Command: []string{"echo begun; exec sleep 1000"}, Background: true, Show: true})
	r.await(func(e driver.Event) bool {
		return e.Type == driver.ExecOutput && strings.Contains(string(e.Data), "begun")
	})
	list := do[driver.Processes](r, driver.DoProcesses, nil).List
	if len(list) != 1 || list[0].ID != "bg" || list[0].PID != out.PID || list[0].Ended {
		t.Fatalf("%+v", list)
	}
	r.fails(agent.NotFound, "nothing was started", driver.DoSignal, driver.SignalArgs{ID: "no"})
	r.fails(agent.Invalid, "no signal", driver.DoSignal, driver.SignalArgs{ID: "bg", Signal: "NO"})
	do[any](r, driver.DoSignal, driver.SignalArgs{ID: "bg"})
	end := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "bg", Command: []string{"x"}}) // waits for it
	if end.Signal != "TERM" || end.Stdout != "begun\n" {
		t.Errorf("%+v", end)
	}
	if list := do[driver.Processes](r, driver.DoProcesses, nil).List; !list[0].Ended || list[0].Code != -1 {
		t.Errorf("%+v", list)
	}
}

func frame(c io.Writer, kind driver.ExecFrame, b string) {
	_, _ = c.Write(driver.AppendExecFrame(nil, kind, []byte(b)))
}

func readFrame(t *testing.T, c io.Reader) (driver.ExecFrame, string) {
	t.Helper()
	kind, b, err := driver.ReadExecFrame(c)
	if err != nil {
		t.Fatal(err)
	}
	return kind, string(b)
}

func TestExecOverAStream(t *testing.T) {
	r := start(t)
	e := &driver.Exec{ID: "1", Command: []string{`trap 'echo got it' USR1; read a; echo "a is $a"; read b; echo "b is $b"`}}
	err := r.put(driver.DoExec, e, func(s *driver.Stream) { e.Stream = s }, nil, func(c link.Conn) {
		frame(c, 'i', "one\n")
		if kind, text := readFrame(t, c); kind != 'o' || text != "a is one\n" {
			t.Errorf("%c %q", kind, text)
		}
		frame(c, 's', "USR1")
		frame(c, 'i', "")
		all := ""
		for {
			kind, text := readFrame(t, c)
			if kind == 'x' {
				var x driver.ExecResult
				if json.Unmarshal([]byte(text), &x) != nil || x.Code != 0 {
					t.Errorf("%s", text)
				}
				break
			}
			all += text
		}
		if !strings.Contains(all, "b is \n") {
			t.Errorf("%q", all)
		}
	})
	if err != nil {
		t.Error(err)
	}

	// Who goes away takes the program along.
	e = &driver.Exec{ID: "2", Command: []string{"echo $$; sleep 1000"}}
	pid := ""
	err = r.put(driver.DoExec, e, func(s *driver.Stream) { e.Stream = s }, nil, func(c link.Conn) {
		_, pid = readFrame(t, c)
		c.Close()
	})
	if err != nil || !gone(strings.TrimSpace(pid)) {
		t.Errorf("%v: the process %s", err, pid)
	}
}

func TestSetup(t *testing.T) {
	r := start(t)
	ok := do[driver.SetupResult](r, driver.DoSetup, driver.SetupArgs{Script: "echo made > made; cat; pwd; echo ä >&2"})
	if ok.Code != 0 || ok.Stdout != r.work+"\n" {
		t.Errorf("%+v", ok)
	}
	bad := do[driver.SetupResult](r, driver.DoSetup, driver.SetupArgs{Script: "echo $NO_SUCH_VARIABLE"})
	if bad.Code == 0 || !strings.Contains(bad.Stderr, "NO_SUCH_VARIABLE") {
		t.Errorf("%+v", bad)
	}
	slow := do[driver.SetupResult](r, driver.DoSetup, driver.SetupArgs{Script: "sleep 1000", Timeout: 20 * time.Millisecond})
	if !slow.TimedOut {
		t.Errorf("%+v", slow)
	}
	n := 0
	_, list := r.await(func(e driver.Event) bool {
		if e.Type == driver.SetupEnded {
			n++
		}
		return strings.Contains(string(e.Data), "TERM")
	})
	if !strings.Contains(kinds(list), "setup.output setup.ended") || !strings.Contains(show(list), "ä") {
		t.Error(show(list))
	}
}

func TestPort(t *testing.T) {
	r := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "from "+q.URL.Path) })}
	go s.Serve(l)
	defer s.Close()
	port := l.Addr().(*net.TCPAddr).Port
	a := &driver.PortArgs{Port: port}
	st, err := r.link.Stream()
	if err != nil {
		t.Fatal(err)
	}
	a.Stream = st.Args()
	do[any](r, driver.DoPort, a)
	c, err := st.Conn(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET /x HTTP/1.0\r\n\r\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "from /x") {
		t.Errorf("%q %v", b, err)
	}
	c.Close()
	s.Close()
	r.fails(agent.Unavailable, "nothing listens", driver.DoPort, driver.PortArgs{Port: port})
	r.fails(agent.Invalid, "no port", driver.DoPort, driver.PortArgs{Port: 0})
}
