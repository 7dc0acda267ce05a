package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

// TestInABox runs the driver where it is to run: as the main process of a container with no network and 64 MiB of memory.
func TestInABox(t *testing.T) {
	image := imagetest.Tools(t)
	file := dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver")
	provider, err := docker.New(&docker.Options{Host: dockertest.Host(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	dir := shortDir(t)
	p := newPlane(t, dir)
	p.boot.Socket, p.boot.Relay, p.boot.Workdir = sandbox.SocketDir+"/"+sandbox.Socket, "", ""
	h, err := provider.Create(p.ctx(), &sandbox.Request{
		Owner: "driver-test-" + string(agent.NewSandboxID(time.Now())), ID: agent.NewSandboxID(time.Now()), Generation: 1, Image: image, Sockets: dir, Driver: file,
		Size: agent.SandboxSize{Memory: 64 << 20, CPUs: 1, Pids: 32, Disk: 64 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := provider.Delete(p.ctx(), h); err != nil {
			t.Error(err)
		}
	}()
	if err := provider.Start(p.ctx(), h, bytes.NewReader(p.line())); err != nil {
		t.Fatal(err)
	}
	if err := p.link.Ready(p.ctx()); err != nil {
		log, _ := provider.Log(p.ctx(), h, 4096)
		t.Fatalf("%v: %s", err, log)
	}
	f := p.link.Hello().Facts
	if f.UID != sandbox.UserID || f.Capabilities != "0000000000000000" || !f.NoNewPrivs || f.Seccomp != 2 || f.Interfaces != "lo" || f.Memory != 64<<20 || f.Pids != 32 {
		t.Errorf("the box is %+v", f)
	}
	if out := p.exec("1", "pwd; echo $HOME; cat /proc/1/environ 2>&1 | tr -d '\\0' | head -c 0; touch /x", false); out.Code == 0 ||
		out.Stdout != sandbox.Workspace+"\n"+sandbox.Home+"\n" {
		t.Errorf("%+v", out)
	}

	// The engine would not tell that a child of the main process was ended for want of memory.
	out := p.exec("2", "head -c 200M /dev/zero | tail", false)
	if !out.OOM || out.Code == 0 {
		t.Errorf("%+v", out)
	}
	p.await(driver.OutOfMemory)
	out = p.exec("3", "for i in $(seq 100); do sleep 100 & done; wait", false)
	if out.Code == 0 || !strings.Contains(out.Stderr, "fork") {
		t.Errorf("beyond the limit of processes: %+v", out)
	}
	if out := p.exec("4", "echo still here", false); out.Stdout != "still here\n" {
		t.Errorf("%+v", out)
	}

	// Of a crash as of an end, the box is gone with its driver.
	if err := p.link.Do(p.ctx(), driver.DoShutdown, nil, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the box is still there", func() bool {
		s, err := provider.Inspect(p.ctx(), h)
		return err == nil && s.Phase == sandbox.Exited && s.Code == 0
	})
	var log bytes.Buffer
	b, err := provider.Log(p.ctx(), h, 1<<16)
	log.Write(b)
	if err != nil || strings.Contains(log.String(), p.boot.Token) {
		t.Errorf("the log has the token, or cannot be read: %v", err)
	}
	for line := range strings.Lines(log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
}
