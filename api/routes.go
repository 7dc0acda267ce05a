package api

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// route is one operation. The fiber routes and the OpenAPI document are both made from the table of routes.
type route struct {
	method  string
	path    string // in OpenAPI's form: /v1/agents/{name}
	id      string
	summary string
	status  int // of success
	endpoint

	open      bool                 // needs no token
	owner     string               // what it does that only an owner may: "make tokens"; empty means that developers may, too
	whole     bool                 // about the whole server: not for a token that is bound to one app
	media     []string             // content types of the result; JSON unless set
	results   map[int]reflect.Type // JSON results by status, when the handler's type does not tell
	limit     int64                // most bytes of the body
	limitKind agent.Limit          // the limit that a larger body hits
	index     int                  // in the table
}

const typeAny = "*/*"

// table lists every operation. {path} at the end of a path takes the rest of it, slashes included.
func (s *Server) table() []route {
	call, up := agent.MaxLimits().Input, s.o.Upload
	events := []string{typeJSON, typeSSE, typeNDJSON}
	rs := []route{
		{method: "POST", path: "/v1/plugins", id: "putPlugin", summary: "Store code as a plugin", status: 201,
			endpoint: handle(s.putPlugin), limit: up, limitKind: agent.LimitUpload, media: []string{typeJSON, typeNDJSON}, results: uploadResults()},
		{method: "GET", path: "/v1/plugins", id: "listPlugins", summary: "List plugins, newest first", endpoint: handle(s.listPlugins)},
		{method: "GET", path: "/v1/plugins/{ref}", id: "getPlugin", summary: "Show a plugin", endpoint: handle(s.getPlugin)},
		{method: "GET", path: "/v1/plugins/{ref}/content", id: "getPluginContent", summary: "Download a plugin's file",
			endpoint: handle(s.pluginContent), media: []string{typeAny}},

		{method: "POST", path: "/v1/agents", id: "createAgent", summary: "Create an agent", status: 201, endpoint: handle(s.createAgent)},
		{method: "GET", path: "/v1/agents", id: "listAgents", summary: "List agents, newest first", endpoint: handle(s.listAgents)},
		{method: "POST", path: "/v1/agents/delete", id: "deleteAgents", summary: "Delete agents, all or none", status: 204, endpoint: handle(s.deleteAgents)},
		{method: "GET", path: "/v1/agents/{name}", id: "getAgent", summary: "Show an agent", endpoint: handle(s.getAgent)},
		{method: "PATCH", path: "/v1/agents/{name}", id: "updateAgent", summary: "Change an agent", endpoint: handle(s.updateAgent)},
		{method: "DELETE", path: "/v1/agents/{name}", id: "deleteAgent", summary: "Delete an agent", status: 204, endpoint: handle(s.deleteAgent)},
		{method: "GET", path: "/v1/agents/{name}/grants", id: "agentGrants", summary: "Show what an agent may do, and what its code asks for", endpoint: handle(s.agentGrants)},
		{method: "GET", path: "/v1/agents/{name}/logs", id: "agentLogs", summary: "Read or follow an agent's log", endpoint: handle(s.agentLogs), media: events, results: eventResults()},
		{method: "GET", path: "/v1/agents/{name}/state", id: "listState", summary: "List keys of an agent's state, in their order", endpoint: handle(s.listState)},
		{method: "GET", path: "/v1/agents/{name}/state/{key}", id: "getState", summary: "Read one key of an agent's state", endpoint: handle(s.getState), media: []string{typeAny}},
		{method: "PUT", path: "/v1/agents/{name}/state/{key}", id: "putState", summary: "Set one key of an agent's state", endpoint: handle(s.putState), limit: agent.MaxStateValue},
		{method: "DELETE", path: "/v1/agents/{name}/state/{key}", id: "deleteState", summary: "Delete one key of an agent's state", status: 204, endpoint: handle(s.deleteState)},
		{method: "POST", path: "/v1/agents/{name}/call/{function}", id: "callAgent", summary: "Call a function in a fresh cell: bytes in, bytes out",
			endpoint: handle(s.call), limit: call, media: []string{typeAny}},

		{method: "POST", path: "/v1/sessions", id: "createSession", summary: "Open a session", status: 201, endpoint: handle(s.createSession)},
		{method: "GET", path: "/v1/sessions", id: "listSessions", summary: "List sessions, newest first", endpoint: handle(s.listSessions)},
		{method: "GET", path: "/v1/sessions/{id}", id: "getSession", summary: "Show a session", endpoint: handle(s.getSession)},
		{method: "POST", path: "/v1/sessions/{id}/messages", id: "sendMessage", summary: "Send a message, which starts a run", status: 202, endpoint: handle(s.sendMessage)},
		{method: "GET", path: "/v1/sessions/{id}/events", id: "sessionEvents", summary: "Read or follow a session's log", endpoint: handle(s.sessionEvents), media: events, results: eventResults()},
		{method: "GET", path: "/v1/sessions/{id}/ws", id: "sessionSocket", summary: "Follow a session's log and send messages over a WebSocket", status: 101, endpoint: handle(s.sessionSocket)},

		{method: "POST", path: "/v1/runs", id: "startRun", summary: "Start a run", status: 202, endpoint: handle(s.startRun)},
		{method: "GET", path: "/v1/runs", id: "listRuns", summary: "List runs, newest first", endpoint: handle(s.listRuns)},
		{method: "POST", path: "/v1/runs/cancel", id: "cancelRuns", summary: "Cancel runs", endpoint: handle(s.cancelRuns)},
		{method: "GET", path: "/v1/runs/{id}", id: "getRun", summary: "Show a run", endpoint: handle(s.getRun)},
		{method: "POST", path: "/v1/runs/{id}/cancel", id: "cancelRun", summary: "Cancel a run", endpoint: handle(s.cancelRun)},
		{method: "GET", path: "/v1/runs/{id}/events", id: "runEvents", summary: "Read or follow a run's events, up to its last", endpoint: handle(s.runEvents), media: events, results: eventResults()},

		{method: "POST", path: "/v1/code", id: "runCode", summary: "Run code once; nothing is kept", endpoint: handle(s.code)},

		{method: "PUT", path: "/v1/secrets/{name}", id: "putSecret", summary: "Set a secret's value, which nothing returns", owner: "set secrets", endpoint: handle(s.putSecret)},
		{method: "GET", path: "/v1/secrets", id: "listSecrets", summary: "List secrets, newest first, without their values", endpoint: handle(s.listSecrets)},
		{method: "GET", path: "/v1/secrets/{name}", id: "getSecret", summary: "Show a secret and its versions, without their values", endpoint: handle(s.getSecret)},
		{method: "PATCH", path: "/v1/secrets/{name}", id: "updateSecret", summary: "Change what a secret is bound to, or its description", owner: "change secrets", endpoint: handle(s.updateSecret)},
		{method: "DELETE", path: "/v1/secrets/{name}", id: "deleteSecret", summary: "Delete a secret with all its versions", status: 204, owner: "delete secrets", endpoint: handle(s.deleteSecret)},
		{method: "POST", path: "/v1/secrets/{name}/rollback", id: "rollbackSecret", summary: "Make an earlier version of a secret the current one", owner: "roll secrets back", endpoint: handle(s.rollbackSecret)},
		{method: "POST", path: "/v1/secrets/rewrap", id: "rewrapSecrets", summary: "Put every secret under another vault key", owner: "re-wrap secrets", whole: true, endpoint: handle(s.rewrapSecrets)},

		{method: "POST", path: "/v1/apps", id: "createApp", summary: "Make an app", status: 201, owner: "make apps", whole: true, endpoint: handle(s.createApp)},
		{method: "GET", path: "/v1/apps", id: "listApps", summary: "List apps, newest first", endpoint: handle(s.listApps)},
		{method: "GET", path: "/v1/apps/{name}", id: "getApp", summary: "Show an app", endpoint: handle(s.getApp)},
		{method: "PATCH", path: "/v1/apps/{name}", id: "updateApp", summary: "Change an app", owner: "change apps", whole: true, endpoint: handle(s.updateApp)},
		{method: "DELETE", path: "/v1/apps/{name}", id: "deleteApp", summary: "Delete an app in which nothing is left", status: 204, owner: "delete apps", whole: true, endpoint: handle(s.deleteApp)},

		{method: "GET", path: "/v1/audit", id: "audit", summary: "Read or follow the app's audit log", endpoint: handle(s.auditLog), media: events, results: eventResults()},

		{method: "GET", path: "/v1/usage", id: "usage", summary: "Add up what the app's agents have used, by day, agent and kind", endpoint: handle(s.usage),
			media: []string{typeJSON, typeCSV, typeNDJSON}, results: map[int]reflect.Type{http.StatusOK: reflect.TypeFor[usageReport]()}},
		{method: "GET", path: "/v1/usage/events", id: "usageEvents", summary: "Export single usage events", endpoint: handle(s.usageEvents), media: []string{typeNDJSON}},
		{method: "GET", path: "/v1/usage/quotas", id: "quotas", summary: "Show how much of their quotas the app and its agents use now", endpoint: handle(s.quotas)},

		{method: "POST", path: "/v1/tokens", id: "createToken", summary: "Make a token; its secret is shown this once", status: 201, owner: "make tokens", endpoint: handle(s.createToken)},
		{method: "GET", path: "/v1/tokens", id: "listTokens", summary: "List tokens, newest first", endpoint: handle(s.listTokens)},
		{method: "DELETE", path: "/v1/tokens/{id}", id: "deleteToken", summary: "Delete a token", status: 204, owner: "delete tokens", endpoint: handle(s.deleteToken)},
		{method: "POST", path: "/v1/tokens/delete", id: "deleteTokens", summary: "Delete tokens", status: 204, owner: "delete tokens", endpoint: handle(s.deleteTokens)},

		{method: "GET", path: "/v1/backup", id: "backup", summary: "Download a backup of the whole store", owner: "take backups", whole: true, endpoint: handle(s.backup), media: []string{typeBackup}},

		{method: "GET", path: "/v1/openapi.json", id: "openapi", summary: "This document", endpoint: handle(s.openapi), open: true},
		{method: "GET", path: "/healthz", id: "health", summary: "Whether the process is alive", endpoint: handle(s.healthz), open: true},
		{method: "GET", path: "/readyz", id: "ready", summary: "Whether requests are taken", endpoint: handle(s.readyz), open: true},
		{method: "GET", path: "/metrics", id: "metrics", summary: "Figures for Prometheus", whole: true, endpoint: handle(s.prometheus), media: []string{typeMetrics}},
	}
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		rs = append(rs, route{
			method: m, path: "/v1/agents/{name}/http/{path}", id: "fetch" + m[:1] + strings.ToLower(m[1:]),
			summary: "Pass a request to the agent's fetch handler", endpoint: handle(s.fetch), limit: call, media: []string{typeAny},
		})
	}
	for i := range rs {
		r := &rs[i]
		r.index = i
		if r.status == 0 {
			r.status = http.StatusOK
		}
		if r.limit == 0 {
			r.limit = maxJSON
		}
		if r.limitKind == agent.NoLimit {
			r.limitKind = agent.LimitInput
		}
	}
	return rs
}

// passes reports whether the route passes requests on to agents, whose query is then none of ours.
func (r *route) passes() bool { return strings.HasSuffix(r.path, "/{path}") }

// fiberPath turns /v1/agents/{name}/http/{path} into /v1/agents/:name/http/*.
func fiberPath(path string) string {
	path = strings.ReplaceAll(path, "{path}", "*")
	path = strings.ReplaceAll(path, "{", ":")
	return strings.ReplaceAll(path, "}", "")
}
