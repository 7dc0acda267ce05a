package preview

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

func TestLinks(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 500, time.UTC)
	l := &Links{Key: bytes.Repeat([]byte("k"), 32), URL: "https://example.com/skep/", Now: func() time.Time { return now }}
	want := Port{App: "shop", Sandbox: "S", Number: 65535}
	made, err := l.Make(want, 0)
	if err != nil || !made.Expires.Equal(now.Add(Default).Truncate(time.Second)) {
		t.Fatalf("%+v, %v", made, err)
	}
	rest, ok := strings.CutPrefix(made.URL, "https://example.com/skep"+Path)
	token, end := strings.CutSuffix(rest, "/")
	if !ok || !end || strings.Contains(token, "/") {
		t.Fatal(made.URL)
	}
	if got, err := l.Open(token); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range token { // each of its characters counts
		changed := []byte(token)
		changed[i] = 'A' + (changed[i]-'A'+1)%26
		if _, err := l.Open(string(changed)); agent.KindOf(err) != agent.Denied {
			t.Fatalf("with another character %d: %v", i, err)
		}
	}
	other := *l
	other.Key = bytes.Repeat([]byte("o"), 32)
	if _, err := other.Open(token); err == nil {
		t.Error("another server opens it")
	}
	now = made.Expires.Add(-1)
	if _, err := l.Open(token); err != nil {
		t.Errorf("at its last moment: %v", err)
	}
	now = made.Expires
	if _, err := l.Open(token); agent.KindOf(err) != agent.Denied || !strings.Contains(err.Error(), "was good until 2030-01-01T01:00:00Z") {
		t.Errorf("past its time: %v", err)
	}
}

func TestLinksRefused(t *testing.T) {
	l := &Links{Key: bytes.Repeat([]byte("k"), 32), URL: "http://127.0.0.1:1"}
	for _, x := range []struct {
		port  int
		lasts time.Duration
		want  string
	}{
		{0, 0, "0 is no port"}, {-1, 0, "-1 is no port"}, {65536, 0, "65536 is no port"},
		{1, time.Millisecond, "from 1s to 24h0m0s"}, {1, -time.Hour, "from 1s to 24h0m0s"}, {1, Max + 1, "from 1s to 24h0m0s"},
	} {
		if _, err := l.Make(Port{Number: x.port}, x.lasts); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), x.want) {
			t.Errorf("port %d for %s: %v, want %q", x.port, x.lasts, err, x.want)
		}
	}
	if _, err := l.Make(Port{Number: 1}, Max); err != nil {
		t.Error(err)
	}
	nowhere := &Links{Key: l.Key}
	if _, err := nowhere.Make(Port{Number: 1}, 0); err == nil || !strings.Contains(agent.AsError(err).Hint, "--public-url") {
		t.Errorf("without an address: %v", err)
	}
}

// Nothing opens but what was made.
func FuzzOpen(f *testing.F) {
	l := &Links{Key: bytes.Repeat([]byte("k"), 32), URL: "http://127.0.0.1:1", Now: func() time.Time { return time.Unix(1, 0) }}
	made, err := l.Make(Port{App: "shop", Sandbox: "S", Number: 80}, 0)
	if err != nil {
		f.Fatal(err)
	}
	token := strings.TrimSuffix(strings.TrimPrefix(made.URL, l.URL+Path), "/")
	f.Add(token)
	f.Add(token[:56])
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := l.Open(s); (err == nil) != (s == token) {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	})
}
