package inside_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/inside"
)

func TestHello(t *testing.T) {
	r := start(t)
	h := r.link.Hello()
	if h.Driver != "test" || h.Sandbox != box || h.Generation != generation || h.Facts.Interfaces == "" {
		t.Errorf("hello: %+v", h)
	}
	r.fails(agent.Invalid, "no command", "dance", nil)
	r.fails(agent.Invalid, "cannot be read", driver.DoExec, []int{1})
}

// The environment of what runs has the relay as its proxy, and what the control plane has said.
func TestEnvironmentAndRelay(t *testing.T) {
	r := start(t)
	out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "1", Command: []string{`echo "$HTTP_PROXY $http_proxy $NO_PROXY $GREETING $HOME"; pwd`}})
	fields := strings.Fields(out.Stdout)
	if len(fields) != 6 || fields[0] != fields[1] || fields[2] != "127.0.0.1,localhost,::1" || fields[3] != "hello" || fields[4] != r.home || fields[5] != r.work {
		t.Fatalf("the environment is %q", fields)
	}
	answer, err := http.Get(fields[0] + "/ai/v1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if b, _ := io.ReadAll(answer.Body); string(b) != "model says /ai/v1/x" {
		t.Errorf("by the relay comes %q", b)
	}
}

func TestAuthority(t *testing.T) {
	r := newRig(t)
	r.opts.Boot.CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
	r.serve(r.token)
	r.drive()
	r.ready()
	out := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "1", Command: []string{`cat $NODE_EXTRA_CA_CERTS; head -c 64 $SSL_CERT_FILE; echo; echo $GIT_SSL_CAINFO`}})
	if strings.Count(out.Stdout, "AAAA") != 2 || !strings.HasSuffix(out.Stdout, "ca-bundle.pem\n") {
		t.Errorf("the authorities are %q", out.Stdout)
	}
}

// DoShutdown ends everything, after all events are stored.
func TestShutdown(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, driver.Prompt{Turn: "1", CLI: "fake", Model: "m", Text: "hang"})
	bg := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "bg", Command: []string{"sleep 1000"}, Background: true})
	do[any](r, driver.DoShutdown, nil)
	if err := r.ended(); err != nil {
		t.Fatal(err)
	}
	if end, _ := r.turnEnd("1"); end.Status != driver.TurnInterrupted {
		t.Errorf("the turn ended as %+v", end)
	}
	r.await(func(e driver.Event) bool {
		return e.Type == driver.CLIExited && strings.Contains(string(e.Data), `"bg"`)
	})
	if _, err := os.Stat("/proc/" + itoa(bg.PID)); err == nil {
		t.Error("a program in the background is still there")
	}
	r.until("the driver is not lost to the control plane", func() bool { return !r.link.Up() })
	if err := r.link.Do(r.ctx(), driver.DoProcesses, nil, nil); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a command after the end: %v", err)
	}
}

func TestSignalToTheDriverEndsAll(t *testing.T) {
	r := start(t)
	do[any](r, driver.DoPrompt, driver.Prompt{Turn: "1", CLI: "fake", Model: "stubborn", Text: "hang"})
	r.stop()
	if err := r.ended(); err != nil {
		t.Fatal(err)
	}
	if end, _ := r.turnEnd("1"); end.Status != driver.TurnInterrupted {
		t.Errorf("the turn ended as %+v", end)
	}
}

// Without a control plane the driver ends after its lease, and with it all that it had started.
func TestLease(t *testing.T) {
	r := newRig(t)
	r.opts.Lease = 200 * time.Millisecond
	r.serve(r.token)
	r.drive()
	r.ready()
	bg := do[driver.ExecResult](r, driver.DoExec, driver.Exec{ID: "bg", Command: []string{"sleep 1000"}, Background: true})
	r.crash()
	if err := r.ended(); err == nil || !strings.Contains(err.Error(), "gone for 200ms") {
		t.Errorf("it ended with %v", err)
	}
	if _, err := os.Stat("/proc/" + itoa(bg.PID)); err == nil {
		t.Error("a program in the background is still there")
	}
}

// A Link that is closed tells the driver to end.
func TestClosedLinkEndsTheDriver(t *testing.T) {
	r := start(t)
	r.link.Close(agent.Errorf(agent.Conflict, "replaced by another"))
	if err := r.ended(); err == nil || !strings.Contains(err.Error(), "replaced by another") {
		t.Errorf("it ended with %v", err)
	}
}

// until polls for what no event tells.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatal(what)
		}
		<-tick.C
	}
}

// runShort runs a driver that is refused.
func runShort(t *testing.T, o inside.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return inside.Run(ctx, &o)
}
