package api

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/skill"
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
	ai        bool                 // of the model gateway: its keys and its errors are those of a protocol
	socket    bool                 // a WebSocket of browsers, too: its token may come otherwise than by a header
	owner     string               // what it does that only an owner may: "make tokens"; empty means that developers may, too
	whole     bool                 // about the whole server: not for a token that is bound to one app
	media     []string             // content types of the result; JSON unless set
	results   map[int]reflect.Type // JSON results by status, when the handler's type does not tell
	takes     reflect.Type         // the JSON form of a body that may have others
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

		{method: "GET", path: "/v1/agents/{name}/instances", id: "listInstances", summary: "List an agent's instances, in the order of their keys", endpoint: handle(s.listInstances)},
		{method: "POST", path: "/v1/agents/{name}/instances/delete", id: "deleteInstances", summary: "Delete instances with all that is theirs", status: 204, endpoint: handle(s.deleteInstances)},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}", id: "getInstance", summary: "Show an instance", endpoint: handle(s.getInstance)},
		{method: "DELETE", path: "/v1/agents/{name}/instances/{key}", id: "deleteInstance", summary: "Delete an instance with all that is its", status: 204, endpoint: handle(s.deleteInstance)},
		{method: "POST", path: "/v1/agents/{name}/instances/{key}/call/{method}", id: "callInstance", summary: "Call a method of an instance, which is made when it is not there: bytes in, bytes out",
			endpoint: handle(s.callInstance), limit: call, media: []string{typeAny}},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}/ws", id: "instanceSocket", summary: "Connect with an instance over a WebSocket: its shared state, calls, events and messages",
			status: 101, endpoint: handle(s.instanceSocket), socket: true},
		{method: "GET", path: "/agents/{name}/{key}", id: "agentSocket", summary: "The same, where clients of Cloudflare's package agents look for it", status: 101, endpoint: handle(s.agentSocket), socket: true},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}/export", id: "exportInstance", summary: "Export an instance's state, alarms, children and events", endpoint: handle(s.exportInstance), media: []string{typeNDJSON}},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}/events", id: "instanceEvents", summary: "Read or follow an instance's own events", endpoint: handle(s.instanceEvents), media: events, results: eventResults()},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}/storage", id: "listStorage", summary: "List keys of an instance's storage, in their order", endpoint: handle(s.listStorage)},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}/storage/{entry}", id: "getStorage", summary: "Read one key of an instance's storage", endpoint: handle(s.getStorage), media: []string{typeAny}},
		{method: "PUT", path: "/v1/agents/{name}/instances/{key}/storage/{entry}", id: "putStorage", summary: "Set one key of an instance's storage", endpoint: handle(s.putStorage), limit: agent.MaxStateValue},
		{method: "DELETE", path: "/v1/agents/{name}/instances/{key}/storage/{entry}", id: "deleteStorage", summary: "Delete one key of an instance's storage", status: 204, endpoint: handle(s.deleteStorage)},
		{method: "GET", path: "/v1/agents/{name}/instances/{key}/alarms", id: "listAlarms", summary: "List an instance's alarms, dead letters too, in the order of their names", endpoint: handle(s.listAlarms)},
		{method: "GET", path: "/v1/agents/{name}/alarms/dead", id: "listDeadLetters", summary: "List the alarms that failed for the last time, of all instances of an agent; a page has all of its last instance", endpoint: handle(s.listDeadLetters)},
		{method: "DELETE", path: "/v1/agents/{name}/instances/{key}/alarms/{alarm}", id: "deleteAlarm", summary: "Take an alarm back, or drop a dead letter", status: 204, endpoint: handle(s.deleteAlarm)},
		{method: "POST", path: "/v1/agents/{name}/instances/{key}/alarms/{alarm}/retry", id: "retryAlarm", summary: "Make a dead letter due now, with all its attempts", endpoint: handle(s.retryAlarm)},

		{method: "POST", path: "/v1/sessions", id: "createSession", summary: "Open a session", status: 201, endpoint: handle(s.createSession)},
		{method: "GET", path: "/v1/sessions", id: "listSessions", summary: "List sessions, newest first", endpoint: handle(s.listSessions)},
		{method: "GET", path: "/v1/sessions/{id}", id: "getSession", summary: "Show a session", endpoint: handle(s.getSession)},
		{method: "POST", path: "/v1/sessions/{id}/messages", id: "sendMessage", summary: "Send a message, which starts a run", status: 202, endpoint: handle(s.sendMessage)},
		{method: "GET", path: "/v1/sessions/{id}/events", id: "sessionEvents", summary: "Read or follow a session's log", endpoint: handle(s.sessionEvents), media: events, results: eventResults()},
		{method: "GET", path: "/v1/sessions/{id}/ws", id: "sessionSocket", summary: "Follow a session's log and send messages over a WebSocket", status: 101, endpoint: handle(s.sessionSocket)},

		{method: "GET", path: "/v1/sessions/{id}/files", id: "listFiles", summary: "List a session's files, in the order of their paths", endpoint: handle(s.listFiles)},
		{method: "GET", path: "/v1/sessions/{id}/files/{path}", id: "getFile", summary: "Download a session's file, or a part of it with a Range header", endpoint: handle(s.getFile), media: []string{typeAny}, results: fileResults()},
		{method: "PUT", path: "/v1/sessions/{id}/files/{path}", id: "putFile", summary: "Store a file with a session", endpoint: handle(s.putFile), limit: agent.MaxFile},
		{method: "DELETE", path: "/v1/sessions/{id}/files/{path}", id: "deleteFile", summary: "Delete a session's file", status: 204, endpoint: handle(s.deleteFile)},

		{method: "POST", path: "/v1/skills", id: "putSkill", summary: "Store a skill: a zip archive of its folder", status: 201, endpoint: handle(s.putSkill), limit: skill.MaxBytes, limitKind: agent.LimitUpload, results: skillResults()},
		{method: "GET", path: "/v1/skills", id: "listSkills", summary: "List skills, in the order of their names", endpoint: handle(s.listSkills)},
		{method: "GET", path: "/v1/skills/{name}", id: "getSkill", summary: "Show a skill", endpoint: handle(s.getSkill)},
		{method: "GET", path: "/v1/skills/{name}/files/{path}", id: "getSkillFile", summary: "Read a file of a skill", endpoint: handle(s.getSkillFile), media: []string{typeAny}},
		{method: "DELETE", path: "/v1/skills/{name}", id: "deleteSkill", summary: "Delete a skill", status: 204, endpoint: handle(s.deleteSkill)},

		{method: "POST", path: "/v1/runs", id: "startRun", summary: "Start a run", status: 202, endpoint: handle(s.startRun)},
		{method: "GET", path: "/v1/runs", id: "listRuns", summary: "List runs, newest first", endpoint: handle(s.listRuns)},
		{method: "POST", path: "/v1/runs/cancel", id: "cancelRuns", summary: "Cancel runs", endpoint: handle(s.cancelRuns)},
		{method: "GET", path: "/v1/runs/{id}", id: "getRun", summary: "Show a run", endpoint: handle(s.getRun)},
		{method: "POST", path: "/v1/runs/{id}/cancel", id: "cancelRun", summary: "Cancel a run", endpoint: handle(s.cancelRun)},
		{method: "GET", path: "/v1/runs/{id}/events", id: "runEvents", summary: "Read or follow a run's events, up to its last", endpoint: handle(s.runEvents), media: events, results: eventResults()},
		{method: "POST", path: "/v1/runs/{id}/events/{type}", id: "sendEvent", summary: "Bring an event from outside to a run that waits for it, or will", endpoint: handle(s.sendEvent)},
		{method: "POST", path: "/v1/runs/{id}/pause", id: "pauseRun", summary: "Hold a run where it next comes to rest", endpoint: handle(s.one("run.pause", s.rt.PauseRuns))},
		{method: "POST", path: "/v1/runs/pause", id: "pauseRuns", summary: "Hold runs where they next come to rest", endpoint: handle(s.many("run.pause", s.rt.PauseRuns))},
		{method: "POST", path: "/v1/runs/{id}/resume", id: "resumeRun", summary: "Let a paused run go on", endpoint: handle(s.one("run.resume", s.rt.ResumeRuns))},
		{method: "POST", path: "/v1/runs/resume", id: "resumeRuns", summary: "Let paused runs go on", endpoint: handle(s.many("run.resume", s.rt.ResumeRuns))},
		{method: "POST", path: "/v1/runs/{id}/terminate", id: "terminateRun", summary: "End a run by way of its rollbacks", endpoint: handle(s.one("run.terminate", s.rt.TerminateRuns))},
		{method: "POST", path: "/v1/runs/terminate", id: "terminateRuns", summary: "End runs by way of their rollbacks", endpoint: handle(s.many("run.terminate", s.rt.TerminateRuns))},
		{method: "POST", path: "/v1/runs/{id}/restart", id: "restartRun", summary: "Start a new run that goes on from a step of this one", status: 202, endpoint: handle(s.restartRun)},
		{method: "POST", path: "/v1/runs/{id}/resolve", id: "resolveRun", summary: "Say what became of a call whose effect is not known", endpoint: handle(s.resolveRun)},
		{method: "GET", path: "/v1/runs/{id}/journal", id: "runJournal", summary: "Read a run's journal", endpoint: handle(s.runJournal)},
		{method: "GET", path: "/v1/runs/{id}/export", id: "exportRun", summary: "Export a run, its events and its journal, clean of secrets", endpoint: handle(s.exportRun), media: []string{typeNDJSON}},
		{method: "POST", path: "/v1/runs/{id}/replay", id: "replayRun", summary: "Play a run again, offline, with its own code or with other code", endpoint: handle(s.replayRun), limit: up,
			limitKind: agent.LimitUpload, takes: reflect.TypeFor[newReplay]()},

		{method: "POST", path: "/v1/code", id: "runCode", summary: "Run code: sealed and once, or with tools as a durable run", endpoint: handle(s.code), results: codeResults()},

		{method: "GET", path: "/v1/approvals", id: "listApprovals", summary: "List what waits for a person, oldest first", endpoint: handle(s.listApprovals)},
		{method: "GET", path: "/v1/approvals/events", id: "approvalEvents", summary: "Follow what is asked and answered, beginning with what is open", endpoint: handle(s.approvalEvents), media: events, results: eventResults()},
		{method: "POST", path: "/v1/approvals/answer", id: "answerApprovals", summary: "Answer questions", endpoint: handle(s.answerApprovals)},
		{method: "GET", path: "/v1/approvals/{id}", id: "getApproval", summary: "Show a question that is open", endpoint: handle(s.getApproval)},
		{method: "GET", path: "/v1/approvals/{id}/arguments", id: "approvalArguments", summary: "Read all of a call's arguments, also of one whose question shows their beginning only", endpoint: handle(s.approvalArguments), media: []string{typeJSON}},
		{method: "POST", path: "/v1/approvals/{id}/answer", id: "answerApproval", summary: "Answer a question", endpoint: handle(s.answerApproval)},
		{method: "POST", path: "/v1/approvals/{id}/link", id: "linkApproval", summary: "Make a link by which a person can answer a question, once", status: 201, endpoint: handle(s.linkApproval)},
		{method: "GET", path: "/approve/{token}", id: "showApprove", summary: "Show the question of a link", endpoint: handle(s.showApprove), open: true, media: []string{typeHTML, typeJSON}, results: approveResults()},
		{method: "POST", path: "/approve/{token}", id: "postApprove", summary: "Answer the question of a link", endpoint: handle(s.postApprove), open: true, media: []string{typeHTML, typeJSON}, results: answeredResults(),
			limit: maxAnswer, takes: reflect.TypeFor[linkAnswer]()},

		{method: "POST", path: "/v1/programs", id: "runProgram", summary: "Run a bounded program of tool calls", endpoint: handle(s.runProgram), results: codeResults()},
		{method: "POST", path: "/v1/programs/check", id: "checkProgram", summary: "Check a bounded program, and run nothing", endpoint: handle(s.checkProgram)},
		{method: "GET", path: "/v1/programs/schema", id: "programSchema", summary: "The JSON Schema of bounded programs", endpoint: handle(s.programSchema), open: true, media: []string{"application/schema+json"}},

		{method: "POST", path: "/v1/tools/servers", id: "addToolServer", summary: "Add a server of tools, and ask it what it has", status: 201, endpoint: handle(s.addToolServer), limit: maxToolServer},
		{method: "GET", path: "/v1/tools/servers", id: "listToolServers", summary: "List servers of tools and how they stand, by name", endpoint: handle(s.listToolServers)},
		{method: "GET", path: "/v1/tools/servers/{name}", id: "getToolServer", summary: "Show a server of tools and how it stands", endpoint: handle(s.getToolServer)},
		{method: "PATCH", path: "/v1/tools/servers/{name}", id: "updateToolServer", summary: "Change a server of tools", endpoint: handle(s.updateToolServer), limit: maxToolServer},
		{method: "DELETE", path: "/v1/tools/servers/{name}", id: "deleteToolServer", summary: "Remove a server of tools, and end it", status: 204, endpoint: handle(s.deleteToolServer)},
		{method: "POST", path: "/v1/tools/servers/{name}/refresh", id: "refreshToolServer", summary: "Ask a server of tools anew what it has", endpoint: handle(s.refreshToolServer)},
		{method: "GET", path: "/v1/tools/servers/{name}/prompts", id: "listPrompts", summary: "List the prompts of a server of tools; SERVER.prompts.get gets one", endpoint: handle(s.listPrompts)},
		{method: "GET", path: "/v1/tools/servers/{name}/resources", id: "listResources", summary: "List the resources of a server of tools; SERVER.resources.read reads one", endpoint: handle(s.listResources)},
		{method: "POST", path: "/v1/tools/servers/{name}/authorize", id: "authorizeTools", summary: "Begin to authorize Skep with a server of tools, on a page that a person opens", endpoint: handle(s.authorizeTools)},
		{method: "GET", path: "/v1/tools/servers/{name}/authorize", id: "toolAuthorization", summary: "Show whether Skep is authorized with a server of tools", endpoint: handle(s.toolAuthorization)},
		{method: "DELETE", path: "/v1/tools/servers/{name}/authorize", id: "forgetToolAuthorization", summary: "Delete what a server of tools has given Skep", status: 204, endpoint: handle(s.forgetAuthorization)},
		{method: "GET", path: callbackPath, id: "oauthCallback", summary: "Where a server of tools sends a person back to", endpoint: handle(s.oauthCallback), open: true,
			media: []string{typeHTML, typeJSON}, results: map[int]reflect.Type{http.StatusOK: reflect.TypeFor[authorized]()}},
		{method: "GET", path: "/v1/tools", id: "listTools", summary: "List tools by name, or those that words speak of", endpoint: handle(s.listTools)},
		{method: "GET", path: "/v1/tools/declarations", id: "toolDeclarations", summary: "Declare tools in TypeScript, as code mode shows them", endpoint: handle(s.toolDeclarations)},
		{method: "PUT", path: "/v1/tools/effects", id: "classifyTools", summary: "Say what tools can do", owner: "classify tools", endpoint: handle(s.classifyTools)},
		{method: "POST", path: "/v1/tools/pin", id: "pinTools", summary: "Accept tools as they are now", owner: "accept changed tools", endpoint: handle(s.pinTools)},
		{method: "GET", path: "/v1/tools/{name}", id: "getTool", summary: "Show a tool", endpoint: handle(s.getTool)},
		{method: "POST", path: "/v1/tools/{name}/call", id: "callTool", summary: "Call a tool in a run of its own", endpoint: handle(s.callTool), limit: call, results: codeResults()},

		{method: "GET", path: "/v1/policy", id: "getPolicy", summary: "Show the app's policy, or a former one", endpoint: handle(s.getPolicy)},
		{method: "PUT", path: "/v1/policy", id: "putPolicy", summary: "Set the app's policy", owner: "set the policy", endpoint: handle(s.putPolicy)},
		{method: "GET", path: "/v1/policy/history", id: "policyHistory", summary: "List the policies that are kept, newest first", endpoint: handle(s.policyHistory)},
		{method: "POST", path: "/v1/policy/test", id: "testPolicy", summary: "Run the examples of a policy", endpoint: handle(s.testPolicy)},
		{method: "POST", path: "/v1/policy/lint", id: "lintPolicy", summary: "Look for what is probably not meant in a policy", endpoint: handle(s.lintPolicy)},
		{method: "POST", path: "/v1/policy/explain", id: "explainPolicy", summary: "Tell what becomes of a call, and why", endpoint: handle(s.explainPolicy)},

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

		{method: "GET", path: "/v1/usage", id: "usage", summary: "Add up what the app's agents have used, by day, agent and kind, and calls of models by provider, model, route, user and key", endpoint: handle(s.usage),
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
	rs = append(rs, s.mcpRoutes(call)...)
	rs = append(rs, s.sandboxRoutes()...)
	rs = append(rs, s.modelRoutes()...)
	rs = append(rs, s.aiRoutes()...)
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

// passes reports whether the route passes requests on to agents, whose query is then none of ours: its handler takes the path from the URL.
func (r *route) passes() bool {
	return strings.HasSuffix(r.path, "/{path}") && !slices.ContainsFunc(r.plan.fields, func(f fieldPlan) bool { return f.source == "path" && f.name == "path" })
}

// fiberPath turns /v1/agents/{name}/http/{path} into /v1/agents/:name/http/*.
func fiberPath(path string) string {
	path = strings.ReplaceAll(path, "{path}", "*")
	path = strings.ReplaceAll(path, "{", ":")
	return strings.ReplaceAll(path, "}", "")
}
