package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// The canaries, one for each kind of secret that goes into a request as text. Their bytes differ in each encoding.
const (
	canaryHeader = `cAn"ry<h>/+ö&&7#header-1`
	canaryQuery  = `cAn"ry<q>/+ö&&7#query-22`
	canaryForm   = `cAn"ry<f>/+ö&&7#form-333`
	canaryJSON   = `cAn"ry<j>/+ö&&7#json-4444`
	canaryBasic  = `cAn"ry<b>/+ö&&7#basic-5555`
	canaryClient = `cAn"ry<c>/+ö&&7#client-666`
	canaryToken  = `tok-cAnry.exchanged~7777_88`   // what the client's secret is exchanged for
	canaryGitHub = `ghs_cAnryInstalled9999x0`      // what the private key of a GitHub App is exchanged for
	canaryAWS    = `cAnry/K7MDENG+bPxRfiCYaws8888` // signs, and never leaves
)

var (
	canaries = []string{canaryHeader, canaryQuery, canaryForm, canaryJSON, canaryBasic, canaryClient, canaryToken, canaryGitHub, canaryAWS}
	arriving = canaries[:len(canaries)-1]
)

// encodings are what an upstream may turn a value into that a reader could turn back.
var encodings = []func(string) string{
	func(s string) string { return s },
	func(s string) string { b, _ := json.Marshal(s); return strings.Trim(string(b), `"`) },
	func(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "/", `\/`).Replace(s) },
	url.QueryEscape, url.PathEscape,
	func(s string) string { return everyByte("%%%02x", s) },
	func(s string) string { return everyByte("%%%02X", s) },
	func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "x")) },
	func(s string) string { return base64.StdEncoding.EncodeToString([]byte("xy" + s + "xy")) },
	func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("x" + s + "x")) },
	func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("xy" + s + "xy")) },
	func(s string) string { return hex.EncodeToString([]byte(s)) },
	func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	html.EscapeString,
}

func everyByte(format, s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

// needles are what must be nowhere: the canaries, and the middle of each of their encodings, which no edge effect changes.
func needles() map[string]string {
	out := map[string]string{}
	for _, c := range canaries {
		for i, encode := range encodings {
			text := encode(c)
			out[text[4:len(text)-4]] = fmt.Sprintf("%s in encoding %d", c, i)
		}
	}
	return out
}

// hunt reports canaries in b.
func hunt(t *testing.T, where string, b []byte) {
	t.Helper()
	for needle, what := range needles() {
		if i := bytes.Index(b, []byte(needle)); i >= 0 {
			t.Errorf("%s has %s: ...%.200q", where, what, b[max(0, i-60):])
		}
	}
}

// echo is an upstream that wants secrets to come out: it sends what it was sent in every encoding, in headers and bodies, cut
// into pieces, compressed, and in errors and redirects.
type echo struct {
	mu   sync.Mutex
	got  map[string]bool // canaries that arrived
	hold chan struct{}   // closed when requests of /hold may be answered
	held chan struct{}   // has one when a request of /hold is there
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, pass, _ := r.BasicAuth()
	said := r.Header.Get("Authorization") + " " + r.URL.RawQuery + " " + string(body) + " " + pass
	if plain, err := url.QueryUnescape(said); err == nil {
		said += plain
	}
	var values []string
	var doc struct{ Key string }
	_ = json.Unmarshal(body, &doc)
	for _, c := range canaries {
		if strings.Contains(said, c) || doc.Key == c {
			values = append(values, c)
		}
	}
	e.mu.Lock()
	for _, v := range values {
		e.got[v] = true
	}
	e.mu.Unlock()
	switch r.URL.Path {
	case "/token":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":3600}`, canaryToken)
	case "/app/installations/1/access_tokens":
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":%q,"expires_at":%q}`, canaryGitHub, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	case "/token-broken":
		http.Error(w, `{"error":"`+said+`"}`, http.StatusBadRequest)
	case "/hold":
		e.held <- struct{}{}
		<-e.hold
	case "/redirect":
		values = append(values, "none")
		http.Redirect(w, r, "/"+url.PathEscape(values[0])+"?q="+url.QueryEscape(values[0]), http.StatusFound)
	case "/cut":
		w.Header().Set("Content-Length", "100000")
		fmt.Fprint(w, said)
	default:
		e.say(w, r.URL.Path, values)
	}
}

func (e *echo) say(w http.ResponseWriter, path string, values []string) {
	var all bytes.Buffer
	for i, encode := range encodings {
		for _, v := range values {
			fmt.Fprintf(&all, "%s\n", encode(v))
			if text := encode(v); !strings.ContainsAny(text, "\r\n") && i < 12 {
				w.Header().Add(fmt.Sprintf("X-Echo-%d", i), text)
			}
		}
	}
	if path == "/gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		_, _ = zip.Write(all.Bytes())
		_ = zip.Close()
		return
	}
	if path == "/fail" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	for b := all.Bytes(); len(b) > 0; { // in pieces that cut through every value
		n := min(7, len(b))
		_, _ = w.Write(b[:n])
		w.(http.Flusher).Flush()
		b = b[n:]
	}
}

const leaky = `
	import { secret, kv, emit, callAgent } from "skep";
	const base = "http://127.0.0.1:PORT";
	const auth = (name) => ({ headers: { authorization: "Bearer " + secret(name) } });
	const asks = {
		header: (p) => fetch(base + p, auth("header")),
		query: (p) => fetch(base + p + "?key=" + secret("query")),
		form: (p) => fetch(base + p, { method: "POST", body: new URLSearchParams({ key: secret("form") }) }),
		json: (p) => fetch(base + p, { method: "POST", body: JSON.stringify({ key: secret("json") }), headers: { "content-type": "application/json" } }),
		basic: (p) => fetch(base + p, { headers: { authorization: secret("basic") } }),
		client: (p) => fetch(base + p, auth("client")),
		broken: (p) => fetch(base + p, auth("broken")),
		github: (p) => fetch(base + p, auth("github")),
		aws: (p) => fetch(base + p, { headers: { authorization: secret("aws") } }),
	};
	const kept = [];
	export async function all() {
		for (const [name, ask] of Object.entries(asks)) {
			for (const p of ["/", "/gzip", "/fail", "/redirect", "/cut"]) {
				let text;
				try {
					const res = await ask(p);
					text = res.url + JSON.stringify([...res.headers]) + (await res.text());
				} catch (e) {
					text = String(e) + String(e.cause) + e.stack;
				}
				kept.push(text);
				console.log(name, p, text);
				emit("echo", text);
				await kv.set(name + p, text.slice(0, 60000));
				await callAgent("leaky", "same", text);
			}
		}
		return kept;
	}
	export const same = (x) => x;
	export async function hold() {
		await all();
		await fetch(base + "/hold");
		return kept.length;
	}
	export async function fail() { throw new Error((await all()).join("\n")); }
	export default { async fetch(req) { return new Response((await all()).join("\n"), { headers: { "x-kept": encodeURIComponent(kept[0]).slice(0, 4000) } }); } };
`

// TestNoSecretLeaks uses secrets in every way that there is, and looks for them in all that a guest, a caller, a listener, an
// operator or a thief of the disk could see.
func TestNoSecretLeaks(t *testing.T) {
	up := &echo{got: map[string]bool{}, hold: make(chan struct{}), held: make(chan struct{}, 1)}
	upstream := httptest.NewServer(up)
	defer upstream.Close()
	var logged safeBuffer
	c := startServer(t, &logged, nil)
	defer c.stop()
	ctx := t.Context()

	base := upstream.URL
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]client.NewSecret{
		"header": secretAt(t, agent.SecretValue, canaryHeader, base), "query": secretAt(t, agent.SecretValue, canaryQuery, base+" query:key"),
		"form": secretAt(t, agent.SecretValue, canaryForm, base+" body:key"), "json": secretAt(t, agent.SecretValue, canaryJSON, base+" body:/key"),
		"basic":  secretAt(t, agent.SecretBasic, map[string]string{"username": "ada", "password": canaryBasic}, base),
		"client": secretAt(t, agent.SecretOAuth, map[string]string{"token_url": base + "/token", "client_id": "me", "client_secret": canaryClient}, base),
		"broken": secretAt(t, agent.SecretOAuth, map[string]string{"token_url": base + "/token-broken", "client_id": "me", "client_secret": canaryClient}, base),
		"github": secretAt(t, agent.SecretGitHub, map[string]string{"app_id": "7", "installation_id": "1", "private_key": rsaKey(t), "api_url": base}, base),
		"aws": secretAt(t, agent.SecretAWS, map[string]string{
			"access_key_id": "AKIDEXAMPLE", "secret_access_key": canaryAWS, "region": "us-east-1", "service": "service",
		}, base),
	} {
		_, err := c.SetSecret(ctx, name, s)
		must(nil, err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
	must(c.PutPlugin(ctx, client.Upload{Name: "leaky", Filename: "leaky.ts", Body: []byte(strings.ReplaceAll(leaky, "PORT", port))}, nil))
	var grants agent.Grants
	must(nil, json.Unmarshal([]byte(`{"http":["`+base+`"],"secrets":["header","query","form","json","basic","client","broken","github","aws"],"agents":["leaky"],"state":{}}`), &grants))
	must(c.CreateAgent(ctx, client.NewAgent{Name: "leaky", Plugin: "leaky", Grants: grants, Limits: agent.Limits{Log: 16 << 20}}))

	out, _, err := c.Call(ctx, "leaky", "all", agent.Payload{}, 20*time.Second)
	must(nil, err)
	hunt(t, "the output of a call", out.Body)
	if n := bytes.Count(out.Body, []byte("[secret]")); n < 100 {
		t.Errorf("only %d values came back to be scrubbed", n)
	}
	_, _, err = c.Call(ctx, "leaky", "fail", agent.Payload{}, 20*time.Second)
	hunt(t, "the error of a call", fmt.Appendf(nil, "%#v", agent.AsError(err)))
	run, err := c.StartRun(ctx, client.NewRun{Agent: "leaky", Function: "fail"})
	must(nil, err)
	for e, err := range c.Events(ctx, client.RunLog(run.ID), 0, true) {
		must(nil, err)
		hunt(t, "an event of a run", fmt.Appendf(nil, "%s %s", e.Name, e.Data))
	}
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	res, err := c.Fetch("leaky", req)
	must(nil, err)
	body, err := io.ReadAll(res.Body)
	must(nil, err)
	hunt(t, "a response of the fetch handler", append(body, fmt.Sprint(res.Header)...))

	held := make(chan error, 1)
	go func() {
		_, _, err := c.Call(ctx, "leaky", "hold", agent.Payload{}, 20*time.Second)
		held <- err
	}()
	select {
	case <-up.held:
	case err := <-held:
		t.Fatal("the call did not wait: ", err)
	}
	if n := huntCells(t); n == 0 {
		t.Error("no memory of a cell was found to look into")
	}
	close(up.hold)
	must(nil, <-held)

	for _, log := range []client.Log{client.AgentLog("leaky"), client.AuditLog(client.AuditFilter{}), client.SessionLog(run.Session)} {
		for e, err := range c.Events(ctx, log, 0, false) {
			must(nil, err)
			hunt(t, "a log", fmt.Appendf(nil, "%s %s", e.Name, e.Data))
		}
	}
	secrets, err := c.Secrets(ctx, agent.Page{})
	must(nil, err)
	hunt(t, "the list of secrets", fmt.Appendf(nil, "%+v", secrets))
	var saved bytes.Buffer
	must(nil, c.Backup(ctx, &saved))
	hunt(t, "a backup", saved.Bytes())
	c.stop()
	hunt(t, "the server's log", logged.Bytes())
	huntFiles(t, c.dir)
	for _, v := range arriving {
		if !up.got[v] {
			t.Errorf("%s never arrived upstream", v)
		}
	}
}

// rsaKey returns a new private key in PEM.
func rsaKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// huntCells looks into the memory of all cells of this process, and returns how many mappings it found.
func huntCells(t *testing.T) (n int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "memfd:skep-image") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, to-from)
		got, err := mem.ReadAt(b, from)
		if err != nil && got == 0 {
			continue
		}
		n++
		hunt(t, "the memory of a cell", b[:got])
	}
	return n
}

func huntFiles(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		hunt(t, "file "+path, b)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
