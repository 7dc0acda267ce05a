package codex

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/driver/backend/backendtest"
)

var update = flag.Bool("update", false, "write testdata/contract.json anew")

// contract is the part of the schema that the CLI writes of itself which matters to the backend: the names of all that it can tell and ask, and of what is
// used the fields with their types.
type contract struct {
	Version       string                       `json:"version"`
	Notifications []string                     `json:"notifications"`
	Requests      []string                     `json:"requests"`
	Types         map[string]map[string]string `json:"types"` // fields of types, and the values of enumerations
}

// used are the types of which fields are read or written.
var used = []string{
	"InitializeParams", "ThreadStartParams", "ThreadResumeParams", "TurnStartParams", "TurnInterruptParams", "TurnSteerParams", "TurnCompletedNotification", "TurnStartedNotification", "Turn", "TurnError",
	"TurnStatus", "CodexErrorInfo", "ItemStartedNotification", "ItemCompletedNotification", "ThreadItem", "AgentMessageDeltaNotification", "ReasoningTextDeltaNotification",
	"ReasoningSummaryTextDeltaNotification", "CommandExecutionOutputDeltaNotification", "FileChangePatchUpdatedNotification", "FileUpdateChange", "PatchChangeKind",
	"TurnPlanUpdatedNotification", "TurnPlanStep", "TurnPlanStepStatus", "ThreadTokenUsageUpdatedNotification", "ThreadTokenUsage", "TokenUsageBreakdown", "ErrorNotification",
	"WarningNotification", "ConfigWarningNotification", "ServerRequestResolvedNotification", "AskForApproval", "SandboxMode", "CommandExecutionStatus", "PatchApplyStatus",
	"CommandExecutionRequestApprovalParams", "CommandExecutionApprovalDecision", "FileChangeRequestApprovalParams", "FileChangeRequestApprovalResponse",
	"PermissionsRequestApprovalParams", "PermissionsRequestApprovalResponse", "ToolRequestUserInputParams", "ToolRequestUserInputQuestion", "ToolRequestUserInputResponse",
	"McpServerElicitationRequestParams", "McpServerElicitationRequestResponse",
}

// golden is the contract of the version that the tests are about.
func golden(t *testing.T) (c contract) {
	t.Helper()
	text, err := os.ReadFile("testdata/contract.json")
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// All that Codex can tell is handled, or ignored on purpose; all that it can ask is answered, or refused on purpose.
func TestKnown(t *testing.T) {
	c := golden(t)
	if want := "@openai/codex@" + c.Version; New().Spec().Package != want {
		t.Errorf("the backend is for %s, the contract for %s", New().Spec().Package, want)
	}
	known := append(slices.Sorted(maps.Keys(handlers)), ignored...)
	slices.Sort(known)
	if diff := cmp.Diff(c.Notifications, known); diff != "" {
		t.Errorf("notifications (-Codex +here):\n%s", diff)
	}
	refused := []string{"account/chatgptAuthTokens/refresh", "applyPatchApproval", "attestation/generate", "execCommandApproval", "item/tool/call"}
	known = append(slices.Sorted(maps.Keys(askers)), refused...)
	slices.Sort(known)
	if diff := cmp.Diff(c.Requests, known); diff != "" {
		t.Errorf("requests (-Codex +here):\n%s", diff)
	}
	errors := slices.Sorted(maps.Keys(c.Types["CodexErrorInfo"]))
	for name := range errorKinds {
		if !slices.Contains(errors, name) {
			t.Errorf("Codex has no error %s", name)
		}
	}
}

// The schema of the CLI is that of the golden. Where it is not, the backend has to be looked at: the difference names what has drifted.
func TestContract(t *testing.T) {
	cli := backendtest.CLI{Name: "codex"}
	cli.Need(t)
	dir := t.TempDir()
	bin, err := filepath.Abs("../backendtest/clis/codex/node_modules/.bin/codex")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "app-server", "generate-json-schema", "--out", dir)
	cmd.Env = append(os.Environ(), "CODEX_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := contract{Version: cli.Version(t, "@openai/codex"), Types: map[string]map[string]string{}}
	got.Notifications = methods(t, filepath.Join(dir, "ServerNotification.json"))
	got.Requests = methods(t, filepath.Join(dir, "ServerRequest.json"))
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]any{}
	for _, file := range files {
		s := schema(t, file)
		if title, ok := s["title"].(string); ok {
			types[title] = s
		}
		if all, ok := s["definitions"].(map[string]any); ok {
			maps.Copy(types, all)
			if v2, ok := all["v2"].(map[string]any); ok {
				maps.Copy(types, v2)
			}
		}
	}
	for _, name := range used {
		fields := map[string]string{}
		reduce(types[name], fields)
		if len(fields) == 0 {
			t.Errorf("Codex has no type %s", name)
		}
		got.Types[name] = fields
	}
	if *update {
		text, _ := json.MarshalIndent(got, "", " ")
		if err := os.WriteFile("testdata/contract.json", append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(golden(t), got); diff != "" {
		t.Errorf("the protocol has drifted (-golden +%s); look at what that means, then go test ./driver/backend/codex -run Contract -update:\n%s", got.Version, diff)
	}
}

func schema(t *testing.T, file string) (s map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// methods are the names of a union of messages.
func methods(t *testing.T, file string) (out []string) {
	t.Helper()
	list, _ := schema(t, file)["oneOf"].([]any)
	for _, v := range list {
		names := map[string]string{}
		m, _ := v.(map[string]any)
		p, _ := m["properties"].(map[string]any)
		reduce(p["method"], names)
		out = append(out, slices.Collect(maps.Keys(names))...)
	}
	slices.Sort(out)
	return out
}

// reduce writes the fields of a type, and the values of an enumeration, to fields. Of a union these are those of all of its members.
func reduce(v any, fields map[string]string) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	for _, union := range []string{"oneOf", "anyOf", "allOf"} {
		list, _ := m[union].([]any)
		for _, member := range list {
			reduce(member, fields)
		}
	}
	values, _ := m["enum"].([]any)
	for _, v := range values {
		if name, ok := v.(string); ok {
			fields[name] = "value"
		}
	}
	props, _ := m["properties"].(map[string]any)
	for name, p := range props {
		kind := kindOf(p)
		if name == "type" || name == "mode" {
			values := map[string]string{}
			reduce(p, values)
			for value := range values {
				fields[name+":"+value] = "value"
			}
			continue
		}
		if old, ok := fields[name]; ok && !slices.Contains(strings.Split(old, " or "), kind) {
			kind = old + " or " + kind
		} else if ok {
			kind = old
		}
		fields[name] = kind
	}
}

func kindOf(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return "any"
	}
	if ref, ok := m["$ref"].(string); ok {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	var parts []string
	switch kind := m["type"].(type) {
	case string:
		parts = append(parts, kind)
	case []any:
		for _, k := range kind {
			if s, ok := k.(string); ok {
				parts = append(parts, s)
			}
		}
	}
	for _, union := range []string{"oneOf", "anyOf", "allOf"} {
		list, _ := m[union].([]any)
		for _, member := range list {
			parts = append(parts, kindOf(member))
		}
	}
	out := strings.Join(parts, "|")
	if items, ok := m["items"]; ok {
		out += "[" + kindOf(items) + "]"
	}
	return out
}
