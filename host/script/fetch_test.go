package script

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/http/clienttest"
)

// web is a real server on loopback, and what a cell needs to reach it. It counts the calls that cells make.
type web struct {
	*clienttest.Clients
	url   string
	gone  chan string // paths whose client went away
	came  chan string // paths of requests that have come, for whose clients that has to be so
	mu    sync.Mutex
	calls []string
}

func newWeb(t testing.TB) *web {
	w := &web{Clients: clienttest.New(), gone: make(chan string, 8), came: make(chan string, 8)}
	server := httptest.NewServer(nethttp.HandlerFunc(w.serve))
	w.url = server.URL
	t.Cleanup(server.Close)
	t.Cleanup(w.Close)
	return w
}

func (w *web) serve(res nethttp.ResponseWriter, req *nethttp.Request) {
	flush := func() { _ = nethttp.NewResponseController(res).Flush() }
	switch path := req.URL.Path; path {
	case "/json":
		res.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(res, `{"n":1}`)
	case "/echo":
		b, _ := io.ReadAll(req.Body)
		res.Header().Set("X-Length", fmt.Sprint(req.ContentLength))
		res.Header().Set("X-Type", req.Header.Get("Content-Type"))
		res.Header().Set("X-Name", "Ünïcode 日本")
		_, _ = fmt.Fprintf(res, "%s %s", req.Method, b)
	case "/long":
		for i := range 5000 {
			_, _ = fmt.Fprintf(res, "line %d of many, many lines\n", i)
		}
	case "/ping": // answers each piece of the request with one of its own
		_ = nethttp.NewResponseController(res).EnableFullDuplex()
		flush()
		b := make([]byte, 100)
		for {
			n, err := req.Body.Read(b)
			if n > 0 {
				_, _ = fmt.Fprintf(res, "got %s;", b[:n])
				flush()
			}
			if err != nil {
				return
			}
		}
	case "/from":
		nethttp.Redirect(res, req, "/json", nethttp.StatusFound)
	case "/empty":
		res.WriteHeader(nethttp.StatusNoContent)
	case "/broken":
		_, _ = io.WriteString(res, "part")
		flush()
		panic(nethttp.ErrAbortHandler)
	case "/stuck":
		_, _ = io.WriteString(res, "begin")
		flush()
		<-req.Context().Done()
		w.gone <- path
	case "/silent":
		<-req.Context().Done()
	case "/mute":
		w.came <- path
		<-req.Context().Done()
		w.gone <- path
	case "/came": // answers when a request for one of two others has come
		<-w.came
	case "/sink":
		w.came <- path
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			w.gone <- path
		}
	case "/full":
		res.Header().Set("Connection", "close")
		res.WriteHeader(nethttp.StatusRequestEntityTooLarge)
	default:
		nethttp.NotFound(res, req)
	}
}

// door returns a fresh cell's calls, and what closes them.
func (w *web) door() (Calls, func()) {
	table := http.New(w.Client, nil)
	d := grant.NewDoor(agent.DefaultLimits(), table.Handlers(), nil)
	w.calls = nil
	return func(ctx context.Context, name string, in []byte) ([]byte, error) {
		w.mu.Lock()
		w.calls = append(w.calls, name)
		w.mu.Unlock()
		return d.Call(ctx, name, in)
	}, table.Close
}

// asked lists the calls, sorted.
func (w *web) asked() string { return strings.Join(slices.Sorted(slices.Values(w.calls)), " ") }

// fetches is an agent whose functions get the server's URL.
const fetches = `
const wait = (ms) => new Promise((f) => setTimeout(f, ms));
const bytes = (s) => new TextEncoder().encode(s);
const readAll = async (stream) => { let s = ""; for await (const b of stream.pipeThrough(new TextDecoderStream())) s += b; return s };
const pieces = (...list) => new ReadableStream({ async pull(c) { if (list.length) { await 0; c.enqueue(bytes(list.shift())) } else c.close() } });
const why = async (p) => { try { await p; return "no error" } catch (e) { return [e.name, e.message, e.cause?.name, e.cause?.kind] } };

export const json = async (url) => (await fetch(url + "/json")).json();
export const twice = async (url) => [await json(url), await json(url)];
export const about = async (url) => {
	const r = await fetch(url + "/json");
	return [r.status, r.statusText, r.ok, r.type, r.redirected, r.url === url + "/json", r.headers.get("Content-Type"), r.bodyUsed];
};
export const post = async (url) => {
	const r = await fetch(url + "/echo", { method: "POST", body: JSON.stringify({ a: "é" }), headers: { "Content-Length": "9", host: "elsewhere", connection: "close" } });
	return [await r.text(), r.headers.get("x-length"), r.headers.get("x-type"), r.headers.get("x-name")];
};
export const form = async (url) => (await (await fetch(url + "/echo", { method: "POST", body: new URLSearchParams({ a: "1 2" }) })).text());
export const long = async (url) => {
	const text = await (await fetch(url + "/long")).text();
	return [text.length, text.endsWith("line 4999 of many, many lines\n")];
};
export const stream = async (url) => {
	const r = await fetch(url + "/long");
	let n = 0, most = 0, lines = 0;
	for await (const b of r.body) { n += b.length; most = Math.max(most, b.length); for (const c of b) if (c === 10) lines++ }
	return [n > 100000, most <= 65536, lines, r.bodyUsed, await why(r.text())];
};
export const byob = async (url) => {
	const reader = (await fetch(url + "/long")).body.getReader({ mode: "byob" });
	let n = 0, view = new Uint8Array(1000);
	for (;;) { const { done, value } = await reader.read(view); if (done) return n; n += value.length; view = new Uint8Array(value.buffer) }
};
export const up = async (url) => {
	const r = await fetch(url + "/echo", { method: "PUT", duplex: "half", body: pieces("one,", "two,", "three") });
	return [await r.text(), r.headers.get("x-length")];
};
export const upKnown = async (url) => {
	const r = await fetch(url + "/echo", { method: "PUT", body: pieces("one,", "two"), headers: { "content-length": "7" } });
	return [await r.text(), r.headers.get("x-length")];
};
export const upBig = async (url) => {
	let n = 0;
	const r = await fetch(url + "/echo", { method: "PUT", body: new ReadableStream({ pull(c) { if (n++ < 3) c.enqueue(new Uint8Array(300000).fill(97)); else c.close() } }) });
	return (await r.text()).length;
};
export const ping = async (url) => {
	let push;
	const body = new ReadableStream({ start(c) { push = c } });
	push.enqueue(bytes("a"));
	const r = await fetch(url + "/ping", { method: "POST", body, duplex: "half" });
	const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
	const out = [(await reader.read()).value];
	push.enqueue(bytes("b"));
	out.push((await reader.read()).value);
	push.close();
	out.push((await reader.read()).done);
	return out;
};
export const upFails = (url) => why(fetch(url + "/echo", { method: "POST", body: new ReadableStream({ pull() { throw new RangeError("mine") } }) }));
export const upOdd = (url) => why(fetch(url + "/echo", { method: "POST", body: new ReadableStream({ start(c) { c.enqueue(7); c.close() } }) }));
export const upFull = async (url) => {
	let cancelled;
	const told = new Promise((f) => (cancelled = f));
	const r = await fetch(url + "/full", { method: "POST", body: new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(60000)) }, cancel(e) { cancelled(e.name) } }) });
	return [r.status, await told];
};
export const proxied = async (url) => {
	const r = await fetch(url + "/json");
	return (await fetch(url + "/echo", { method: "POST", body: r.body })).text();
};
export const follow = async (url) => { const r = await fetch(url + "/from"); return [r.status, r.redirected, r.url === url + "/json", await r.json()] };
export const manual = async (url) => { const r = await fetch(url + "/from", { redirect: "manual" }); return [r.status, r.redirected, r.headers.get("location"), r.type] };
export const noRedirect = (url) => why(fetch(url + "/from", { redirect: "error" }));
export const oddRedirect = (url) => why(fetch(url + "/from", { redirect: "maybe" }));
export const empty = async (url) => { const r = await fetch(url + "/empty"); return [r.status, r.body, await r.text()] };
export const head = async (url) => { const r = await fetch(url + "/json", { method: "HEAD" }); return [r.status, r.body, r.headers.get("content-length")] };
export const broken = async (url) => { const r = await fetch(url + "/broken"); return why(r.text()) };
export const brokenStream = async (url) => { const r = await fetch(url + "/broken"); return why(readAll(r.body)) };
export const clone = async (url) => {
	const r = await fetch(url + "/long"), c = r.clone();
	const [a, b] = await Promise.all([r.text(), c.text()]);
	return [a === b, a.length, c.status, c.url === r.url, c.type];
};
export const tee = async (url) => { const [a, b] = (await fetch(url + "/json")).body.tee(); return [await readAll(a), await readAll(b)] };
export const again = async (url) => { const r = await fetch(url + "/json"); await r.text(); return [await why(r.text()), r.bodyUsed] };
export const cancel = async (url) => { const r = await fetch(url + "/stuck"); await r.body.cancel("enough"); return "done" };
export const cancelLate = async (url) => {
	const reader = (await fetch(url + "/stuck")).body.getReader();
	const first = new TextDecoder().decode((await reader.read()).value);
	await reader.cancel();
	return [first, (await reader.read()).done];
};
export const unread = async (url) => { await fetch(url + "/stuck"); await wait(0); return "done" };
export const abortedBefore = (url) => why(fetch(url + "/json", { signal: AbortSignal.abort(new Error("mine")) }));
export const timedOut = (url) => why(fetch(url + "/silent", { signal: AbortSignal.timeout(20) }));
export const abortedHead = async (url) => {
	const c = new AbortController();
	const p = why(fetch(url + "/mute", { signal: c.signal }));
	await fetch(url + "/came");
	c.abort(new Error("mine"));
	return p;
};
export const abortedUp = async (url) => {
	const c = new AbortController();
	let cancelled;
	const told = new Promise((f) => (cancelled = f));
	const p = why(fetch(url + "/sink", { method: "POST", signal: c.signal, body: new ReadableStream({ start(s) { s.enqueue(bytes("x")) }, cancel(e) { cancelled(e.message) } }) }));
	await fetch(url + "/came");
	c.abort(new Error("mine"));
	return [await p, await told];
};
export const abortedBody = async (url) => {
	const c = new AbortController();
	const r = await fetch(url + "/stuck", { signal: c.signal });
	setTimeout(() => c.abort(new Error("mine")), 10);
	return why(r.text());
};
export const abortedStream = async (url) => {
	const c = new AbortController();
	const r = await fetch(new Request(url + "/stuck", { signal: c.signal }));
	const reader = r.body.getReader();
	await reader.read();
	setTimeout(() => c.abort(), 10);
	return why(reader.read());
};
export const abortedIdle = async (url) => {
	const c = new AbortController();
	const r = await fetch(url + "/stuck", { signal: c.signal });
	const reader = r.body.getReader();
	c.abort(new Error("mine"));
	return why(reader.read());
};
export const abortedAfter = async (url) => {
	const c = new AbortController();
	const r = await fetch(url + "/json", { signal: c.signal });
	c.abort();
	return r.json();
};
export const immutable = async (url) => { const r = await fetch(url + "/json"); return [await why((async () => r.headers.set("a", "b"))()), new Response(r.body, r).headers.get("content-type")] };
export const refused = (url) => why(fetch("http://192.0.2.1/"));
export const relative = (url) => why(fetch("/x"));
export const many = async (url) => (await Promise.all(Array.from({ length: 60 }, () => json(url)))).length;
export const tooMany = async (url) => {
	const all = await Promise.allSettled(Array.from({ length: 70 }, () => fetch(url + "/stuck")));
	const failed = all.find((r) => r.status === "rejected").reason;
	return [failed.cause.kind, failed.cause.limit, typeof failed.cause.hint];
};
`

func TestFetch(t *testing.T) {
	w := newWeb(t)
	a := load(t, source(fetches))
	for _, tt := range []struct {
		fn, want string
		calls    string // the calls it takes, where that matters
		gone     string // the path from which its client goes away, meanwhile or at its end
	}{
		{fn: "json", want: `{"n":1}`, calls: "http.open"},
		{fn: "twice", want: `[{"n":1},{"n":1}]`, calls: "http.open http.open"},
		{fn: "about", want: `[200,"OK",true,"basic",false,true,"application/json",false]`},
		{fn: "post", want: `["POST {\"a\":\"é\"}","10","text/plain;charset=UTF-8","Ünïcode 日本"]`, calls: "http.open"},
		{fn: "form", want: "POST a=1+2"},
		{fn: "long", want: `[148890,true]`},
		{fn: "stream", want: `[true,true,5000,true,["TypeError","the body was read already",null,null]]`},
		{fn: "byob", want: `148890`},
		{fn: "up", want: `["PUT one,two,three","-1"]`, calls: "http.head http.open http.write http.write http.write http.write"},
		{fn: "upKnown", want: `["PUT one,two","7"]`},
		{fn: "upBig", want: `900004`},
		{fn: "ping", want: `["got a;","got b;",true]`},
		{fn: "upFails", want: `["TypeError","the request's body failed: mine","RangeError",null]`},
		{fn: "upOdd", want: `["TypeError","the request's body failed: a body's stream must yield bytes or strings","TypeError",null]`},
		{fn: "upFull", want: `[413,"TypeError"]`},
		{fn: "proxied", want: `POST {"n":1}`},
		{fn: "follow", want: `[200,true,true,{"n":1}]`},
		{fn: "manual", want: `[302,false,"/json","basic"]`},
		{fn: "noRedirect", want: `["TypeError","Get \"/json\": the response is a redirect","SkepError","unavailable"]`},
		{fn: "oddRedirect", want: `["TypeError","Request: redirect is \"maybe\"; it may be \"follow\", \"error\" or \"manual\"",null,null]`, calls: " "},
		{fn: "empty", want: `[204,null,""]`},
		{fn: "head", want: `[200,null,"7"]`},
		{fn: "broken", want: `["TypeError","the response's body broke off","SkepError","unavailable"]`},
		{fn: "brokenStream", want: `["TypeError","the response's body broke off","SkepError","unavailable"]`},
		{fn: "clone", want: `[true,148890,200,true,"basic"]`},
		{fn: "tee", want: `["{\"n\":1}","{\"n\":1}"]`},
		{fn: "again", want: `[["TypeError","the body was read already",null,null],true]`},
		{fn: "cancel", want: "done", calls: "http.close http.open", gone: "/stuck"},
		{fn: "cancelLate", want: `["begin",true]`, calls: "http.close http.open", gone: "/stuck"},
		{fn: "unread", want: "done", calls: "http.close http.open", gone: "/stuck"},
		{fn: "abortedBefore", want: `["Error","mine",null,null]`, calls: " "},
		{fn: "timedOut", want: `["TimeoutError","The operation timed out",null,null]`},
		{fn: "abortedHead", want: `["Error","mine",null,null]`, gone: "/mute"},
		{fn: "abortedUp", want: `[["Error","mine",null,null],"mine"]`, gone: "/sink"},
		{fn: "abortedBody", want: `["Error","mine",null,null]`, gone: "/stuck"},
		{fn: "abortedStream", want: `["AbortError","This operation was aborted",null,null]`, gone: "/stuck"},
		{fn: "abortedIdle", want: `["Error","mine",null,null]`, gone: "/stuck"},
		{fn: "abortedAfter", want: `{"n":1}`},
		{fn: "immutable", want: `[["TypeError","Headers: those of a received response cannot be changed; new Response(body, response) has some of its own",null,null],"application/json"]`},
		{fn: "refused", want: `["TypeError","Get \"http://192.0.2.1/\": a test may reach loopback only, not 192.0.2.1:80","SkepError","unavailable"]`},
		{fn: "relative", want: `["TypeError","Request: \"/x\" is not an absolute URL",null,null]`, calls: " "},
		{fn: "many", want: "60"},
	} {
		t.Run(tt.fn, func(t *testing.T) {
			calls, end := w.door()
			got := result(t, a, Call{Function: tt.fn, Input: text(w.url), Calls: calls})
			if tt.gone != "" {
				if path := <-w.gone; path != tt.gone {
					t.Errorf("the client of %s went away", path)
				}
			}
			end()
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if tt.calls != "" && w.asked() != strings.TrimSpace(tt.calls) {
				t.Errorf("it took %s, want %s", w.asked(), tt.calls)
			}
		})
	}
}

// TestFetchEnds has a cell end with responses open: the server sees its clients go.
func TestFetchEnds(t *testing.T) {
	w := newWeb(t)
	w.gone = make(chan string, 100)
	a := load(t, source(fetches))
	calls, end := w.door()
	if got, want := result(t, a, Call{Function: "tooMany", Input: text(w.url), Calls: calls}), `["exhausted","http","string"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	end()
	for range 64 {
		<-w.gone
	}
}

// TestFetchTakenBack has the grant taken back while a body is read.
func TestFetchTakenBack(t *testing.T) {
	w := newWeb(t)
	a := load(t, source(`
		import { emit } from "skep";
		export const f = async (url) => {
			const reader = (await fetch(url + "/stuck")).body.getReader();
			await reader.read();
			emit("now");
			try { await reader.read() } catch (e) { return [e.name, e.message, e.cause.kind] }
		}`))
	calls, end := w.door()
	defer end()
	got := result(t, a, Call{Function: "f", Input: text(w.url), Calls: func(ctx context.Context, name string, in []byte) ([]byte, error) {
		if name == abi.CallEmit {
			w.Taken.Store(true)
			return nil, nil
		}
		return calls(ctx, name, in)
	}})
	if want := `["TypeError","the grant was taken back","denied"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	<-w.gone
}

func TestSecret(t *testing.T) {
	a := load(t, source(`
		import { secret } from "skep";
		const early = secret("at-load"); // a name is no secret
		export const ok = () => [early, secret("git.hub_1-x"), secret("a".repeat(63))];
		export const bad = (name) => { try { return secret(name) } catch (e) { return [e.name, e.message] } }`))
	if got, want := result(t, a, Call{Function: "ok"}), `["{{secret:at-load}}","{{secret:git.hub_1-x}}","{{secret:`+strings.Repeat("a", 63)+`}}"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, name := range []string{`""`, `"A"`, `"a}}{{secret:b"`, `"-a"`, `"a\n"`, `7`, `null`, `"` + strings.Repeat("a", 64) + `"`} {
		var got []string
		if err := json.Unmarshal([]byte(result(t, a, Call{Function: "bad", Input: js(name)})), &got); err != nil || got[0] != "TypeError" || !strings.Contains(got[1], "is not the name of a secret") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
