package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/store"
)

// in returns a client for one app with the rig's owner token.
func (r *rig) in(app agent.App) *client.Client {
	return client.New(r.url, r.token, &client.Options{App: app, HTTP: &http.Client{Transport: checked(r.t, r.s.doc)}})
}

// as returns a client with a new token.
func (r *rig) as(role agent.Role, app agent.App) (*client.Client, client.Secret) {
	r.t.Helper()
	tok, err := r.c.CreateToken(context.Background(), client.NewToken{Name: "t", Role: role, App: app})
	if err != nil {
		r.t.Fatal(err)
	}
	return client.New(r.url, tok.Secret, &client.Options{HTTP: &http.Client{Transport: checked(r.t, r.s.doc)}}), tok
}

func (r *rig) app(name agent.App) {
	r.t.Helper()
	if _, err := r.c.CreateApp(context.Background(), client.NewApp{Name: name}); err != nil {
		r.t.Fatal(err)
	}
}

// other is what an app has that another must not see.
type other struct {
	params map[string]string // by the path up to the parameter
	bodies map[string]string // by operation: what of the other app a body can name
	marks  []string          // texts that give the other app away
	view   func() string     // all of it that the API shows
}

func (r *rig) other(name agent.App) other {
	r.t.Helper()
	ctx, cl := context.Background(), r.in(name)
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.app(name)
	_, err := cl.PutPlugin(ctx, client.Upload{Name: "bees-code", Version: "1", Filename: "main.ts", Body: []byte("export const bees = 1")}, nil)
	must(err)
	a, err := cl.CreateAgent(ctx, client.NewAgent{Name: "bees-agent", Plugin: "bees-code", Grants: agent.Grants{State: &agent.StateGrant{}}})
	must(err)
	se, err := cl.CreateSession(ctx, client.NewSession{Agent: "bees-agent", Title: "bees-title"})
	must(err)
	run, err := cl.Send(ctx, se.ID, agent.Message{Content: []byte(`"bees-words"`)})
	must(err)
	for _, err := range cl.Events(ctx, client.RunLog(run.ID), 0, true) {
		must(err)
	}
	if res := r.do("PUT", "/v1/agents/bees-agent/state/bees-key", "1", headerApp, string(name)); res.StatusCode >= 300 {
		r.t.Fatalf("%s %s", res.Status, res.body)
	}
	_, _, err = cl.CallInstance(ctx, "bees-agent", "bees-one", "set", agent.JSON([]byte(`{"key":"bees-own","json":1}`)), 0)
	must(err)
	_, _, err = cl.CallInstance(ctx, "bees-agent", "bees-one", "schedule", agent.JSON([]byte(`{"name":"bees-alarm","method":"echo","delay":3600000}`)), 0)
	must(err)
	if res := r.do("PUT", "/v1/secrets/bees-secret", `{"value":"bees-value"}`, headerApp, string(name)); res.StatusCode >= 300 {
		r.t.Fatalf("%s %s", res.Status, res.body)
	}
	if res := r.do("PUT", "/v1/sessions/"+string(se.ID)+"/files/bees-file", "bees-bytes", headerApp, string(name)); res.StatusCode >= 300 {
		r.t.Fatalf("%s %s", res.Status, res.body)
	}
	_, _, err = cl.PutSkill(ctx, packed(r.t, "bees-skill"))
	must(err)
	if res := r.do("POST", "/v1/tools/servers", `{"name":"bees-server","kind":"stdio","command":["bees"]}`, headerApp, string(name)); res.StatusCode >= 300 {
		r.t.Fatalf("%s %s", res.Status, res.body)
	}
	_, err = r.s.st.PutDoc(ctx, store.Providers, name, "bees-provider", 0, agent.Provider{
		Name: "bees-provider", App: name, URL: "http://127.0.0.1:1", Protocols: agent.Protocols(), Models: []string{"bees-model"}, Private: true,
	})
	must(err)
	for target, body := range map[string]string{
		"providers/bees-provider": `{"url":"https://bees.example/v1","protocols":["openai-chat"],"models":["bees-model"]}`,
		"limits/bees-limit":       `{"window":60000000000,"requests":5}`, "guardrails/bees-guard": `{"words":["bees"],"prompt":true}`,
	} {
		if res := r.do("PUT", "/v1/models/"+target, body, headerApp, string(name)); res.StatusCode >= 300 {
			r.t.Fatalf("%s %s", res.Status, res.body)
		}
	}
	if res := r.do("PUT", "/v1/models/routes/bees-route", `{"candidates":[{"provider":"bees-provider","model":"bees-model"}]}`, headerApp, string(name)); res.StatusCode >= 300 {
		r.t.Fatalf("%s %s", res.Status, res.body)
	}
	loggedCall := agent.NewModelCall(r.s.o.Now())
	must(r.s.st.PutModelLog(ctx, agent.ModelLog{Call: loggedCall, App: name, Asked: "bees-model", Source: agent.FromProvider}))
	modelKey, err := cl.CreateModelKey(ctx, client.NewModelKey{Name: "bees-key"})
	must(err)
	_, err = cl.PutEnvironment(ctx, agent.Environment{Name: "bees-env", Image: "bees/image"})
	must(err)
	box := agent.NewSandboxID(r.s.o.Now())
	must(r.s.st.PutSandbox(ctx, agent.SandboxRecord{Sandbox: agent.Sandbox{
		ID: box, App: name, Agent: "bees-agent", For: "agent/" + string(a.ID), Environment: "bees-env@1", Provider: "docker", Generation: 1, State: agent.SandboxReady, Created: r.s.o.Now(),
	}}, 10))
	_, tok := r.as(agent.Owner, name)
	return other{
		params: map[string]string{
			"/v1/plugins/{ref}": "bees-code", "/v1/agents/{name}": "bees-agent", "/v1/agents/{name}/call/{function}": "echo",
			"/v1/agents/{name}/http/{path}": "x", "/v1/agents/{name}/state/{key}": "bees-key",
			"/v1/agents/{name}/instances/{key}": "bees-one", "/v1/agents/{name}/instances/{key}/call/{method}": "echo",
			"/v1/agents/{name}/instances/{key}/storage/{entry}": "bees-own", "/v1/agents/{name}/instances/{key}/alarms/{alarm}": "bees-alarm",
			"/mcp/{agent}": "bees-agent", "/mcp/code/{agent}": "bees-agent", "/mcp/serve/{agent}": "bees-agent",
			"/agents/{name}": "bees-agent", "/agents/{name}/{key}": "bees-one", "/v1/runs/{id}/events/{type}": "approval", "/v1/sessions/{id}": string(se.ID), "/v1/sessions/{id}/files/{path}": "bees-file",
			"/ai/models/{path}": "bees-model", "/ai/v1/models/{path}": "bees-model", "/ai/v1beta/models/{path}": "bees-provider/bees-model:generateContent",
			"/v1/tools/servers/{name}": "bees-server", "/v1/tools/{name}": "bees-server.look",
			"/v1/models/providers/{name}": "bees-provider", "/v1/models/routes/{name}": "bees-route", "/v1/models/limits/{name}": "bees-limit",
			"/v1/environments/{name}": "bees-env", "/v1/sandboxes/{id}": string(box), "/v1/sandboxes/{id}/files/{path}": "bees.txt",
			"/v1/sandboxes/{id}/processes/{process}": "cli", "/v1/sandboxes/{id}/ports/{port}": "80", "/v1/sandboxes/{id}/ports/{port}/http/{path}": "x",
			"/v1/models/guardrails/{name}": "bees-guard", "/v1/models/keys/{id}": modelKey.ID, "/v1/models/log/{id}": loggedCall,
			"/v1/skills/{name}": "bees-skill", "/v1/skills/{name}/files/{path}": "SKILL.md", "/v1/runs/{id}": string(run.ID),
			"/v1/tokens/{id}": string(tok.ID), "/v1/apps/{name}": string(name), "/v1/secrets/{name}": "bees-secret", "/v1/approvals/{id}": string(run.ID) + "-1",
		},
		bodies: map[string]string{
			"createAgent": `{"name":"x","plugin":"bees-code"}`, "updateAgent": `{"description":"x"}`, "deleteAgents": `{"names":["bees-agent"]}`,
			"createSession": `{"agent":"bees-agent"}`, "sendMessage": `{"content":1}`,
			"startRun": `{"agent":"bees-agent"}`, "cancelRuns": fmt.Sprintf(`{"ids":[%q]}`, run.ID),
			"pauseRuns": fmt.Sprintf(`{"ids":[%q]}`, run.ID), "resumeRuns": fmt.Sprintf(`{"ids":[%q]}`, run.ID), "terminateRuns": fmt.Sprintf(`{"ids":[%q]}`, run.ID),
			"sendEvent": `{"by":"bees"}`, "restartRun": "{}", "resolveRun": `{"call":1,"action":"retry"}`, "deleteInstances": `{"keys":["bees-one"]}`, "putStorage": "2",
			"createToken": fmt.Sprintf(`{"name":"x","app":%q}`, name), "deleteTokens": fmt.Sprintf(`{"ids":[%q]}`, tok.ID),
			"createApp": `{"name":"c"}`, "updateApp": `{"weight":7}`, "putState": "2", "putFile": "2",
			"answerApprovals": fmt.Sprintf(`{"ids":["%s-1"],"allow":true}`, run.ID), "answerApproval": `{"allow":true}`, "linkApproval": "{}",
			"openSandbox": `{"agent":"bees-agent"}`, "execSandbox": `{"command":["true"]}`, "signalProcess": "{}", "putSandboxFile": "2", "putSandboxArchive": "2",
			"putSandboxRepo": "2", "cloneSandboxRepo": `{"url":"https://bees.example/x.git"}`, "linkSandboxPort": "{}",
			"updateToolServer": `{"description":"x"}`, "authorizeTools": "{}", "classifyTools": `[{"tool":"bees-server.look","effect":"read"}]`,
			"pinTools": `{"tools":["bees-server.look"]}`, "callTool": "{}",
			"aiChat": aiBees, "aiChatShort": aiBees, "aiResponses": aiBees, "aiResponsesShort": aiBees, "aiEmbeddings": aiBees, "aiEmbeddingsShort": aiBees,
			"aiMessages": aiBees, "aiCountTokens": aiBees, "aiInputTokens": aiBees, "aiInputTokensShort": aiBees, "aiGemini": aiBees,
			"updateModelKey": `{"disabled":true}`, "updateSecret": `{"description":"x"}`, "rollbackSecret": `{"version":1}`,
		},
		marks: []string{"bees-", string(a.ID), string(se.ID), string(run.ID), string(tok.ID), modelKey.ID, string(box)},
		view: func() string {
			var all strings.Builder
			for _, target := range []string{"/v1/plugins", "/v1/agents", "/v1/sessions", "/v1/runs", "/v1/audit", "/v1/tokens", "/v1/apps/" + string(name),
				"/v1/sessions/" + string(se.ID) + "/events", "/v1/agents/bees-agent/logs",
				"/v1/tools/servers", "/v1/tools", "/v1/secrets", "/v1/secrets/bees-secret", "/v1/agents/bees-agent/state", "/v1/agents/bees-agent/state/bees-key",
				"/v1/agents/bees-agent/instances", "/v1/agents/bees-agent/instances/bees-one/storage", "/v1/agents/bees-agent/instances/bees-one/alarms",
				"/v1/agents/bees-agent/instances/bees-one/events", "/v1/sessions/" + string(se.ID) + "/files", "/v1/skills", "/v1/models/providers", "/v1/models/routes", "/v1/models/limits", "/v1/models/guardrails", "/v1/models/keys", "/v1/environments", "/v1/environments/bees-env/revisions", "/v1/sandboxes"} {
				all.Write(r.do("GET", target, "", headerApp, string(name)).body)
			}
			return all.String()
		},
	}
}

// aiBees asks a model of the other app, in words of several protocols.
const aiBees = `{"model":"bees-provider/bees-model","max_tokens":1,"messages":[{"role":"user","content":"x"}],"input":"x","contents":[{"parts":[{"text":"x"}]}]}`

var paramRE = regexp.MustCompile(`\{[a-z]+\}`)

// target fills in the parameters of a route's path with what the other app has.
func (o other) target(t *testing.T, path string) string {
	out := path
	for _, at := range paramRE.FindAllStringIndex(path, -1) {
		v, ok := o.params[path[:at[1]]]
		if !ok {
			t.Fatalf("say in other what an app has at %s, so that this test can ask another for it", path[:at[1]])
		}
		out = strings.Replace(out, path[at[0]:at[1]], v, 1)
	}
	return out
}

// ownThings lists the operations that a token may use for things of its own app whatever the other app has.
var ownThings = map[string]string{
	"putPlugin": "export {}", "runCode": `{"code":"x","function":"echo"}`, "putSecret": `{"value":"mine-value"}`, "putSkill": string(mySkill),
	"putPolicy": `{"text":"read: allow\n"}`, "testPolicy": "{}", "lintPolicy": "{}", "explainPolicy": `{"tool":"files.read"}`,
	"putProvider": `{"url":"https://mine.example/v1","protocols":["openai-chat"],"models":["mine-model"]}`, "putModelRoute": `{"candidates":[{"provider":"mine-provider"}]}`,
	"putModelLimit": `{"window":60000000000,"requests":1}`, "putGuardrail": `{"find":["email"],"prompt":true}`, "createModelKey": `{"name":"mine-key"}`, "putModelLogging": `{"days":1}`,
	"putEnvironment": `{"image":"mine/image"}`,
	"addToolServer":  `{"name":"mine-server","kind":"stdio","command":["mine"]}`,
	"runProgram":     `{"program":{"steps":[{"step":"return"}]},"wait":0}`, "checkProgram": `{"program":{"steps":[{"step":"return"}]}}`,
}

// Every operation of the table is tried with a token of one app on what another app has. A new operation is covered by what its path
// and its method say, or fails until other and ownThings tell more of it.
func TestAppsAreSealed(t *testing.T) {
	r := start(t, nil)
	b := r.other("b")
	r.app("a")
	_, mine := r.as(agent.Owner, "a")
	before := b.view()
	for _, mark := range b.marks {
		if !strings.Contains(before, mark) {
			t.Errorf("the other app does not show %q, so this test does not look for it", mark)
		}
	}
	for i := range r.s.routes {
		op := &r.s.routes[i]
		if op.open {
			continue
		}
		t.Run(op.id, func(t *testing.T) {
			target, body := b.target(t, op.path), b.bodies[op.id]
			headers := []string{"Authorization", "Bearer " + mine.Secret}
			if op.status == http.StatusSwitchingProtocols {
				headers = append(headers, "Upgrade", "websocket", "Connection", "Upgrade")
			}
			own, isOwn := ownThings[op.id]
			switch {
			case isOwn:
				target, body = strings.ReplaceAll(target, "bees-", "mine-"), own
			case op.path == "/mcp", op.path == "/mcp/code": // they name nothing, and answer in terms of MCP
				if res := r.do(op.method, target, body, append(headers, headerApp, "b")...); res.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s for app b: %s %.300s", op.method, target, res.Status, res.body)
				}
				return
			case body == "" && target == op.path && op.method != "GET" && !op.whole:
				t.Fatalf("say in other what of another app the body of %s can name, or in ownThings that it can name nothing", op.id)
			}
			if op.id == "putPlugin" {
				target += "?name=mine"
			}
			if !strings.Contains(body, "{") {
				headers = append(headers, "Content-Type", "text/javascript")
			}
			res := r.do(op.method, target, body, headers...)
			refused := res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusNotFound
			reaches := body != "" || target != op.path || op.whole // names something of the other app, or of all
			if want := reaches && !isOwn; refused != want || !want && res.StatusCode >= 400 {
				t.Errorf("%s %s: %s %.300s", op.method, target, res.Status, res.body)
			}
			if !refused { // an error may repeat what the request named
				for _, mark := range b.marks {
					if strings.Contains(string(res.body), mark) {
						t.Errorf("%s %s shows %q: %.300s", op.method, target, mark, res.body)
					}
				}
			}
			// The same in so many words is refused everywhere.
			res = r.do(op.method, target, body, append(headers, headerApp, "b")...)
			if res.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s for app b: %s %.300s", op.method, target, res.Status, res.body)
			}
			if op.passes() {
				return
			}
			join := "?"
			if strings.Contains(target, "?") {
				join = "&"
			}
			if res = r.do(op.method, target+join+"app=b", body, headers...); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s?app=b: %s %.300s", op.method, target, res.Status, res.body)
			}
		})
	}
	if d := cmp.Diff(before, b.view()); d != "" {
		t.Errorf("the other app was changed:\n%s", d)
	}
}

func TestAppOfARequest(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	r.app("a")
	r.agent("here") // in the default app
	if _, err := r.in("a").Agent(ctx, "here"); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
	_, err := r.in("nowhere").Agents(ctx, agent.Page{})
	wantKind(t, err, agent.NotFound)
	_, err = r.in("NO/WHERE").Agents(ctx, agent.Page{})
	wantKind(t, err, agent.NotFound)
	if res := r.do("GET", "/v1/agents?app=a", ""); res.StatusCode != 200 || strings.Contains(string(res.body), "here") {
		t.Errorf("%s %s", res.Status, res.body)
	}
	if res := r.do("GET", "/v1/agents?app=nowhere", "", headerApp, "default"); res.StatusCode != 200 || !strings.Contains(string(res.body), "here") {
		t.Errorf("the header wins: %s %s", res.Status, res.body)
	}
	// What an agent is asked is the agent's own business.
	res := r.do("GET", "/v1/agents/here/http/?app=nowhere", "", headerApp, "default")
	if res.StatusCode != 200 || !strings.Contains(string(res.body), "app=nowhere") || strings.Contains(string(res.body), headerApp) {
		t.Errorf("%s %s", res.Status, res.body)
	}
	bound, tok := r.as(agent.Developer, "a")
	if tok.App != "a" || tok.Role != agent.Developer {
		t.Errorf("%+v", tok.Token)
	}
	list, err := bound.Agents(ctx, agent.Page{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	_, err = r.c.CreateToken(ctx, client.NewToken{Name: "t", App: "nowhere"})
	wantKind(t, err, agent.NotFound)
}

func TestApps(t *testing.T) {
	r, ctx := start(t, nil), context.Background()
	d, err := r.c.App(ctx, agent.DefaultApp)
	if err != nil || d.Weight != 1 {
		t.Errorf("%+v %v", d, err)
	}
	a, err := r.c.CreateApp(ctx, client.NewApp{Name: "shop", Weight: 1000, Quota: agent.Quota{Cells: 3}})
	if err != nil || a.Weight != 1000 || a.Quota.Cells != 3 {
		t.Errorf("%+v %v", a, err)
	}
	for _, tt := range []struct {
		body string
		kind agent.Kind
	}{
		{`{"name":"shop"}`, agent.Exists}, {`{"name":"default"}`, agent.Exists}, {`{"name":"Shop"}`, agent.Invalid},
		{`{"name":"x","weight":1001}`, agent.Invalid}, {`{"name":"x","weight":-1}`, agent.Invalid}, {`{"name":"x","quota":{"cells":-1}}`, agent.Invalid},
		{`{"name":"x","outbound":"y"}`, agent.Invalid}, // no agent can be there yet
	} {
		if res := r.do("POST", "/v1/apps", tt.body); res.problem(t).Kind != tt.kind {
			t.Errorf("%s: %s %s", tt.body, res.Status, res.body)
		}
	}
	weight, none, outbound := 0, "nobody", "gate"
	_, err = r.c.UpdateApp(ctx, "shop", client.AppPatch{Weight: &weight})
	wantKind(t, err, agent.Invalid)
	_, err = r.c.UpdateApp(ctx, "shop", client.AppPatch{Outbound: &none})
	wantKind(t, err, agent.NotFound)
	r.agent("gate")
	_, err = r.c.UpdateApp(ctx, "shop", client.AppPatch{Outbound: &outbound}) // an agent of another app
	wantKind(t, err, agent.NotFound)
	weight = 7
	if a, err = r.c.UpdateApp(ctx, agent.DefaultApp, client.AppPatch{Outbound: &outbound, Weight: &weight}); err != nil || a.Outbound != "gate" || a.Weight != 7 {
		t.Errorf("%+v %v", a, err)
	}
	list, err := r.c.Apps(ctx, agent.Page{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("%+v %v", list, err)
	}
	if err := r.c.DeleteApp(ctx, "shop"); err != nil {
		t.Error(err)
	}
	_, err = r.in("shop").Agents(ctx, agent.Page{})
	wantKind(t, err, agent.NotFound)
	wantKind(t, r.c.DeleteApp(ctx, agent.DefaultApp), agent.Conflict)
	r.other("full")
	if e := wantKind(t, r.c.DeleteApp(ctx, "full"), agent.Conflict); !strings.Contains(e.Msg, "1 plugins, 1 agents, 1 secrets, 1 sessions, 1 runs, 1 tokens") {
		t.Errorf("%+v", e)
	}
}

func decodeChange(t *testing.T, e agent.Event) agent.Change {
	t.Helper()
	var c agent.Change
	if err := json.Unmarshal(e.Data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}
