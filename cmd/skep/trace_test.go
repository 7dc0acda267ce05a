package main

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// span is what a collector is told of a span, as far as this test looks.
type span struct {
	TraceID string `json:"traceId"`
	SpanID  string `json:"spanId"`
	Parent  string `json:"parentSpanId"`
	Name    string `json:"name"`
	Links   []struct {
		TraceID string `json:"traceId"`
	} `json:"links"`
	Attributes []struct {
		Key   string `json:"key"`
		Value struct {
			String string `json:"stringValue"`
		} `json:"value"`
	} `json:"attributes"`
}

func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String
		}
	}
	return ""
}

// spanCollector is a collector of spans by OTLP over HTTP in JSON.
type spanCollector struct {
	mu    sync.Mutex
	spans map[string]span // by name
	all   []span
}

// find returns the first span for which is holds.
func (c *spanCollector) find(is func(span) bool) (span, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, is)
	if i < 0 {
		return span{}, false
	}
	return c.all[i], true
}

func (c *spanCollector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		return
	}
	b, _ := io.ReadAll(zip)
	var in struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []span `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	_ = json.Unmarshal(b, &in)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans[s.Name] = s
				c.all = append(c.all, s)
			}
		}
	}
}

// collectSpans has servers that start from now on export to a collector, until the test ends.
func collectSpans(t *testing.T) *spanCollector {
	t.Helper()
	coll := &spanCollector{spans: map[string]span{}}
	collector := httptest.NewServer(coll)
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	return coll
}

// TestTrace follows one trace from a caller through the server, a run and its cell to an upstream.
func TestTrace(t *testing.T) {
	coll := collectSpans(t)
	arrived := make(chan string, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived <- r.Header.Get("Traceparent") }))
	defer upstream.Close()

	var logged safeBuffer
	c := startServer(t, &logged, nil)
	defer c.stop()
	code := `import { storage } from "skep";
export const ask = async () => (await fetch("` + upstream.URL + `/x?q=hidden")).status;
export const keep = async () => { await storage.set("n", 1); };`
	if _, err := c.PutPlugin(t.Context(), client.Upload{Name: "asker", Filename: "asker.ts", Body: []byte(code)}, nil); err != nil {
		t.Fatal(err)
	}
	var grants agent.Grants
	if err := json.Unmarshal([]byte(`{"http":["`+upstream.URL+`"]}`), &grants); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateAgent(t.Context(), client.NewAgent{Name: "asker", Plugin: "asker", Grants: grants}); err != nil {
		t.Fatal(err)
	}
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	post := func(target, body string) (answer map[string]any, traceparent string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Traceparent", "00-"+id+"-00f067aa0ba902b7-01")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_ = json.NewDecoder(res.Body).Decode(&answer)
		return answer, res.Header.Get("Traceparent")
	}
	_, answered := post("/v1/agents/asker/call/ask", "null")
	outgoing := receive(t, arrived)
	run, _ := post("/v1/runs", `{"agent":"asker","function":"ask"}`)
	inRun := receive(t, arrived)
	for _, got := range []string{answered, outgoing, inRun} {
		if !strings.HasPrefix(got, "00-"+id+"-") || !strings.HasSuffix(got, "-01") {
			t.Errorf("traceparent %q is not in the caller's trace", got)
		}
	}
	post("/v1/agents/asker/instances/k/call/keep", "null")
	if run["trace"] == nil || !strings.Contains(run["trace"].(string), id) {
		t.Errorf("the run does not say its trace: %v", run)
	}
	c.stop()
	coll.mu.Lock()
	defer coll.mu.Unlock()
	turn := coll.spans["POST /v1/agents/{name}/instances/{key}/call/{method}"].SpanID
	for name, parent := range map[string]string{
		"POST /v1/agents/{name}/call/{function}": "00f067aa0ba902b7", "call": coll.spans["POST /v1/agents/{name}/call/{function}"].SpanID,
		"run": coll.spans["POST /v1/runs"].SpanID, "http.open": coll.spans["run"].SpanID, "http": coll.spans["http.open"].SpanID,
		"turn": turn, "storage.set": coll.spans["turn"].SpanID, "enter": turn, "commit": turn,
	} {
		if s := coll.spans[name]; s.TraceID != id || s.Parent != parent {
			t.Errorf("span %q is %+v, want the parent %q in trace %s", name, s, parent, id)
		}
	}
	if log := string(logged.Bytes()); !strings.Contains(log, "trace="+id) || strings.Contains(log, "hidden") {
		t.Errorf("the log:\n%s", log)
	}
}

// TestTraceOfInstances follows what nobody asks for by a request: an alarm, a message of an instance to another, an event of a socket.
func TestTraceOfInstances(t *testing.T) {
	coll := collectSpans(t)
	var logged safeBuffer
	c := startServer(t, &logged, nil)
	defer c.stop()
	code := `import { Agent } from "skep";
export default class Room extends Agent {
  async later() { await this.schedule(0, "ring"); }
  ring() { this.emit("rang", 1); }
  async tell(key) { await this.agent("room", key, { send: true }).ring(); }
  onSocketMessage(connection, data) { return connection.send(data); }
}`
	if _, err := c.PutPlugin(t.Context(), client.Upload{Name: "room", Filename: "room.ts", Body: []byte(code)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateAgent(t.Context(), client.NewAgent{Name: "room", Plugin: "room"}); err != nil {
		t.Fatal(err)
	}
	call := func(key, method, input string) {
		t.Helper()
		if _, _, err := c.CallInstance(t.Context(), "room", key, method, agent.JSON([]byte(input)), 0); err != nil {
			t.Fatal(err)
		}
	}
	rang := func(key string) {
		t.Helper()
		for ev, err := range c.Events(t.Context(), client.InstanceLog("room", key), 0, true) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Name == "rang" {
				return
			}
		}
	}
	call("a", "later", "null")
	rang("a")
	call("b", "tell", `"c"`)
	rang("c")
	heard := make(chan string, 1)
	s, err := c.Connect(t.Context(), "room", "d", &client.SocketOptions{OnMessage: func(data []byte, _ bool) { heard <- string(data) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendText("hello"); err != nil {
		t.Fatal(err)
	}
	receive(t, heard)
	s.Close()
	c.stop()

	below := func(parent span, name, key string) {
		t.Helper()
		if _, there := coll.find(func(s span) bool {
			return s.Name == name && s.Parent == parent.SpanID && s.TraceID == parent.TraceID && s.attribute("skep.instance") == key
		}); !there {
			t.Errorf("there is no %q of %q below %+v", name, key, parent)
		}
	}
	alarm, _ := coll.find(func(s span) bool { return s.Name == "alarm.due" })
	below(alarm, "alarm", "a")
	below(alarm, "commit", "")
	told, _ := coll.find(func(s span) bool {
		return s.Name == "turn" && s.attribute("skep.instance") == "b" && s.attribute("skep.function") == "tell"
	})
	if _, there := coll.find(func(s span) bool { return s.attribute("skep.instance") == "c" && s.TraceID == told.TraceID }); !there {
		t.Errorf("what a message does is not in the trace of its sender, %+v", told)
	}
	turn, _ := coll.find(func(s span) bool { return s.attribute("skep.function") == "skep:message" })
	message, _ := coll.find(func(s span) bool { return s.Name == "message" && s.SpanID == turn.Parent })
	below(message, "enter", "")
	below(message, "turn", "d")
	below(message, "commit", "")
	opened, _ := coll.find(func(s span) bool { return s.Name == "GET /v1/agents/{name}/instances/{key}/ws" })
	if len(message.Links) != 1 || message.Links[0].TraceID != opened.TraceID {
		t.Errorf("a message of a socket links to %+v, not to %+v", message.Links, opened)
	}
}

func receive(t *testing.T, ch <-chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("no request arrived")
		return ""
	}
}
