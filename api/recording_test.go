package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// A recording is of the provider that it began with: not of another that has its name later, which may be of another owner's app.
func TestRecordingEndsWithItsProvider(t *testing.T) {
	r := start(t, nil)
	script, err := r.s.st.PutBlob(context.Background(), []byte(hello))
	if err != nil {
		t.Fatal(err)
	}
	put := func(created time.Time) {
		t.Helper()
		p := agent.Provider{Name: "p", App: "default", Protocols: agent.Protocols(), Script: script, Models: []string{"m"}, Created: created}
		if _, err := r.s.st.PutDoc(context.Background(), store.Providers, "default", "p", store.AnyRev, p); err != nil {
			t.Fatal(err)
		}
	}
	put(time.Unix(1, 0).UTC())
	req, _ := http.NewRequestWithContext(t.Context(), "GET", r.url+"/v1/models/providers/p/record", nil)
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if first, err := lines.ReadString('\n'); res.StatusCode != 200 || first != "\n" || err != nil {
		t.Fatalf("%s %q %v", res.Status, first, err)
	}
	r.do("POST", asks[0].path, asks[0].body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "scripted") {
			break
		}
	}
	put(time.Unix(2, 0).UTC())
	r.do("POST", asks[0].path, asks[0].body)
	for {
		line, err := lines.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			t.Fatalf("a call to another provider is told: %s", line)
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
