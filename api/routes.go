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
		{method: "GET", path: "/v1/agents/{name}/logs", id: "agentLogs", summary: "Read or follow an agent's log", endpoint: handle(s.agentLogs), media: events, results: eventResults()},
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

		{method: "POST", path: "/v1/tokens", id: "createToken", summary: "Make a token; its secret is shown this once", status: 201, endpoint: handle(s.createToken)},
		{method: "GET", path: "/v1/tokens", id: "listTokens", summary: "List tokens, newest first", endpoint: handle(s.listTokens)},
		{method: "DELETE", path: "/v1/tokens/{id}", id: "deleteToken", summary: "Delete a token", status: 204, endpoint: handle(s.deleteToken)},
		{method: "POST", path: "/v1/tokens/delete", id: "deleteTokens", summary: "Delete tokens", status: 204, endpoint: handle(s.deleteTokens)},

		{method: "GET", path: "/v1/backup", id: "backup", summary: "Download a backup of the whole store", endpoint: handle(s.backup), media: []string{typeBackup}},

		{method: "GET", path: "/v1/openapi.json", id: "openapi", summary: "This document", endpoint: handle(s.openapi), open: true},
		{method: "GET", path: "/healthz", id: "health", summary: "Whether the process is alive", endpoint: handle(s.healthz), open: true},
		{method: "GET", path: "/readyz", id: "ready", summary: "Whether requests are taken", endpoint: handle(s.readyz), open: true},
		{method: "GET", path: "/metrics", id: "metrics", summary: "Figures for Prometheus", endpoint: handle(s.prometheus), media: []string{typeMetrics}},
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

// fiberPath turns /v1/agents/{name}/http/{path} into /v1/agents/:name/http/*.
func fiberPath(path string) string {
	path = strings.ReplaceAll(path, "{path}", "*")
	path = strings.ReplaceAll(path, "{", ":")
	return strings.ReplaceAll(path, "}", "")
}
