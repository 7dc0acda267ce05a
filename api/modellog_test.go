package api

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/script"
)

func TestModelLog(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	l, err := r.c.ModelLogging(ctx)
	if err != nil || l.Days != 0 || l.Keep() != 0 {
		t.Fatalf("%+v %v", l, err)
	}
	for _, bad := range []agent.ModelLogging{{Days: -1}, {Days: 366}, {Days: 1, Size: 1 << 20}} {
		_, err := r.c.PutModelLogging(ctx, bad)
		wantKind(t, err, agent.Invalid)
	}
	if l, err = r.c.PutModelLogging(ctx, agent.ModelLogging{Days: 7}); err != nil || l.Days != 7 || l.Revision == 0 {
		t.Fatalf("%+v %v", l, err)
	}
	now := time.Now()
	var ids []string
	for i := range 3 {
		at := now.AddDate(0, 0, 3*i-8)
		id := agent.NewModelCall(at)
		ids = append(ids, id)
		if err := r.s.st.PutModelLog(ctx, agent.ModelLog{Call: id, App: "default", Time: at, Asked: "@r", Source: agent.FromProvider, Request: "asked", Answer: strings.Repeat("\x01", 100_000)}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := r.c.ModelLogs(ctx, agent.Page{Limit: 2})
	if err != nil || len(page.Items) != 2 || page.Items[0].Call != ids[2] || page.Items[0].Request != "" || page.Next == "" {
		t.Fatalf("%+v %v", page, err)
	}
	if page, err = r.c.ModelLogs(ctx, agent.Page{Limit: 2, After: page.Next}); err != nil || len(page.Items) != 1 || page.Items[0].Call != ids[0] {
		t.Fatalf("%+v %v", page, err)
	}
	one, err := r.c.ModelLog(ctx, ids[1])
	if err != nil || one.Request != "asked" || one.Answer == "" || !one.Truncated {
		t.Errorf("%d %d %v", len(one.Request), len(one.Answer), err)
	}
	for _, id := range []string{"x", agent.NewModelCall(now)} {
		_, err = r.c.ModelLog(ctx, id)
		wantKind(t, err, agent.NotFound)
	}
	dev, _ := r.as(agent.Developer, "")
	_, err = dev.ModelLog(ctx, ids[1])
	wantKind(t, err, agent.Denied)
	if err := r.s.st.DropModelLogs(ctx, "default", now.AddDate(0, 0, -7)); err != nil {
		t.Fatal(err)
	}
	if page, err = r.c.ModelLogs(ctx, agent.Page{}); err != nil || len(page.Items) != 2 {
		t.Errorf("%d are left, %v", len(page.Items), err)
	}
	if _, err = r.c.PutModelLogging(ctx, agent.ModelLogging{}); err != nil {
		t.Fatal(err)
	}
	if page, err = r.c.ModelLogs(ctx, agent.Page{}); err != nil || len(page.Items) != 0 {
		t.Errorf("%d are left, %v", len(page.Items), err)
	}
}

func TestRecordProvider(t *testing.T) {
	r := start(t, nil)
	r.model("p", hello)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ready, lines := make(chan struct{}), make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- r.c.RecordProvider(ctx, "p", func(line []byte) error {
			if len(line) == 0 {
				close(ready)
			} else {
				lines <- string(line)
			}
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	if res := r.do("POST", "/ai/v1/messages", `{"model":"p/m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	line := <-lines
	if err := script.Check([]byte(line)); err != nil || !json.Valid([]byte(line)) || !strings.Contains(line, "Hello there") {
		t.Errorf("%v %s", err, line)
	}
	cancel()
	<-done
	wantKind(t, r.c.RecordProvider(t.Context(), "nobody", nil), agent.NotFound)
	dev, _ := r.as(agent.Developer, "")
	wantKind(t, dev.RecordProvider(t.Context(), "p", nil), agent.Denied)
}
