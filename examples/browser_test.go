package examples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestChatRoomInBrowser has two people meet in two pages of a real browser. They see what the other says and does, and go on when the
// server was killed.
func TestChatRoomInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the server and a browser")
	}
	needs(t, "chromium")
	t.Parallel()
	readTree(t, "..")
	web := httptest.NewServer(http.FileServer(http.Dir("..")))
	defer web.Close()
	s := start(t, "--origin", web.URL)
	s.must(t, "push", "chat-room", "--agent", "room")
	token := strings.TrimSpace(s.must(t, "token", "create", "page", "--role", "developer"))
	b := openBrowser(t)
	enter := func(who string) *page {
		p := b.page(t, web.URL+"/examples/chat-room/")
		p.must(t, fmt.Sprintf(`{
			const f = document.getElementById("enter").elements;
			[f.url.value, f.token.value, f.who.value] = %s;
			document.getElementById("enter").requestSubmit();
		}`, list("http://"+s.server.addr, token, who)))
		p.until(t, `text("people").split(", ").includes(`+list(who)+`[0])`)
		return p
	}
	say := func(p *page, line string) {
		p.must(t, `document.querySelector("#say input").value = `+list(line)+`[0]; document.getElementById("say").requestSubmit()`)
	}
	ada, bob := enter("Ada"), enter("Bob")
	ada.until(t, `text("people") === "Ada, Bob"`)
	say(ada, "hello")
	bob.until(t, `text("lines") === "Ada: hello"`)
	say(bob, "/topic bees & honey")
	ada.until(t, `text("topic") === "bees & honey"`)
	say(bob, "/topic "+strings.Repeat("x", 81))
	bob.until(t, `text("note").includes("at most 80 characters")`)

	lost := []func(){ada.when(t, `text("note").startsWith("the connection is lost")`), bob.when(t, `text("note").startsWith("the connection is lost")`)}
	s.server.crash(t)
	s.must(t, "instance", "call", "room", "lobby", "say", `{"who":"Cli","text":"I was quick"}`)
	for _, wait := range lost {
		wait()
	}
	for _, p := range []*page{ada, bob} {
		p.until(t, `text("note") === "" && text("lines").includes("quick")`)
		p.until(t, `text("people") === "Ada, Bob" && text("topic") === "bees & honey"`)
	}
	say(bob, "welcome back")
	ada.until(t, `text("lines").endsWith("Bob: welcome back")`)
	say(ada, "<b>thanks</b>")
	bob.until(t, `text("lines").endsWith("Ada: <b>thanks</b>")`)
	for _, p := range []*page{ada, bob} {
		want := "Ada: hello|Cli: I was quick|Bob: welcome back|Ada: <b>thanks</b>"
		if diff := cmp.Diff(want, p.must(t, `[...document.querySelectorAll("#lines li")].map((l) => l.textContent).join("|")`)); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	}
	if b.errors != nil {
		t.Errorf("the pages have errors: %s", b.errors)
	}
}

// list writes strings as JavaScript.
func list(s ...string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// browser is Chromium, spoken to by the DevTools protocol over a pipe: JSON with a NUL at its end.
// https://chromedevtools.github.io/devtools-protocol/
type browser struct {
	out    *os.File
	mu     sync.Mutex
	next   int
	asked  map[int]chan answer
	errors []string // what no code of a page caught
	ended  chan struct{}
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	flags := []string{
		"--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir=" + t.TempDir(),
	}
	if os.Getuid() == 0 {
		flags = append(flags, "--no-sandbox") // which it has no use for as root
	}
	theirs, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("chromium", append(flags, "about:blank")...)
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), theirOut.Close()
	b := &browser{out: out, asked: map[int]chan answer{}, ended: make(chan struct{})}
	go b.read(in) // until the browser ends
	t.Cleanup(func() {
		_, _ = b.do("", "Browser.close", nil)
		_ = out.Close()
		over := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		over.Stop()
		<-b.ended
		_ = in.Close()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return b
}

func (b *browser) read(in *os.File) {
	defer close(b.ended)
	for r := bufio.NewReader(in); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			answer
			ID     int
			Method string
			Params struct{ ExceptionDetails json.RawMessage }
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.Method == "Runtime.exceptionThrown" {
			b.errors = append(b.errors, string(m.Params.ExceptionDetails))
		}
		if ch := b.asked[m.ID]; ch != nil {
			ch <- m.answer
			delete(b.asked, m.ID)
		}
		b.mu.Unlock()
	}
}

// send asks for something, in a page's session or of the browser, and returns what waits for its answer.
func (b *browser) send(session, method string, params any) func() (json.RawMessage, error) {
	ch := make(chan answer, 1)
	b.mu.Lock()
	b.next++
	b.asked[b.next] = ch
	m := map[string]any{"id": b.next, "method": method, "params": params}
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.out.Write(append(text, 0))
	}
	b.mu.Unlock()
	return func() (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		select {
		case a := <-ch:
			if a.Error != nil {
				return nil, errors.New(a.Error.Message)
			}
			return a.Result, nil
		case <-b.ended:
			return nil, errors.New("the browser has ended")
		case <-time.After(time.Minute):
			return nil, errors.New("no answer in a minute")
		}
	}
}

func (b *browser) do(session, method string, params any) (json.RawMessage, error) {
	return b.send(session, method, params)()
}

// page is one page, in a context of its own as if of another person.
type page struct {
	b       *browser
	session string
}

func (b *browser) page(t *testing.T, url string) *page {
	t.Helper()
	var got struct{ BrowserContextID, TargetID, SessionID string }
	ask := func(method string, params map[string]any) {
		t.Helper()
		out, err := b.do(got.SessionID, method, params)
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	ask("Target.createBrowserContext", nil)
	ask("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": got.BrowserContextID})
	ask("Target.attachToTarget", map[string]any{"targetId": got.TargetID, "flatten": true})
	ask("Runtime.enable", nil)
	ask("Page.enable", nil)
	p := &page{b, got.SessionID}
	const loaded = `new Promise((r) => document.readyState === "complete" ? r() : addEventListener("load", r))`
	ask("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		globalThis.text = (id) => document.getElementById(id).textContent.trim();
		globalThis.until = (ok) => new Promise((resolve) => {
			const look = () => ok() && (seen.disconnect(), resolve());
			const seen = new MutationObserver(look);
			seen.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
			look();
		});`})
	ask("Page.navigate", map[string]any{"url": url})
	p.must(t, loaded)
	return p
}

// eval evaluates an expression, waits for what it promises, and returns it as text.
func (p *page) eval(expression string) func() (string, error) {
	wait := p.b.send(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	return func() (string, error) {
		out, err := wait()
		if err != nil {
			return "", err
		}
		var r struct {
			Result           struct{ Value any }
			ExceptionDetails json.RawMessage
		}
		if err := json.Unmarshal(out, &r); err != nil {
			return "", err
		}
		if r.ExceptionDetails != nil {
			return "", errors.New(string(r.ExceptionDetails))
		}
		return fmt.Sprint(r.Result.Value), nil
	}
}

func (p *page) must(t *testing.T, expression string) string {
	t.Helper()
	out, err := p.eval(expression)()
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return out
}

// when watches for the page to be as the expression says from now on, and returns what waits for it.
func (p *page) when(t *testing.T, expression string) func() {
	wait := p.eval(`until(() => ` + expression + `)`)
	return func() {
		t.Helper()
		if _, err := wait(); err != nil {
			body, _ := p.eval(`document.body.innerText`)()
			t.Fatalf("%s: %v; the page says:\n%s", expression, err, body)
		}
	}
}

func (p *page) until(t *testing.T, expression string) { t.Helper(); p.when(t, expression)() }
