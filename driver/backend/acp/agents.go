package acp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// keyVar is the variable that has the key of the gateway.
const keyVar = "SKEP_MODEL_KEY"

// abilities of agents that say no more than the protocol does. OpenCode and the Gemini CLI have tools for plans, and do not tell of them by it.
var abilities = []string{
	backend.Asks, backend.Interrupts, backend.Resumes, backend.Streams, backend.Thinks, backend.Counts, backend.Questions, backend.Diffs, backend.Images,
}

// OpenCode returns the backend of OpenCode.
func OpenCode() *Backend {
	return &Backend{command: openCode, spec: backend.Spec{
		Name: "opencode", Title: "OpenCode", Package: "opencode-ai@1.18.33", Binary: "opencode", Protocol: "ACP 1",
		Models: []string{agent.ChatProtocol.String()}, Abilities: abilities,
	}}
}

// Gemini returns the backend of the Gemini CLI.
func Gemini() *Backend {
	return &Backend{command: gemini, spec: backend.Spec{
		Name: geminiName, Title: "Gemini CLI", Package: "@google/gemini-cli@0.61.0", Binary: "gemini", Protocol: "ACP 1",
		Models: []string{agent.GeminiProtocol.String()}, Abilities: abilities,
	}}
}

// Any returns the backend of agents that are named by their command.
func Any() *Backend {
	return &Backend{command: anyAgent, spec: backend.Spec{
		Name: "acp", Title: "The agent", Protocol: "ACP 1", Abilities: append(slices.Clone(abilities), backend.Plans),
		Models: []string{agent.ChatProtocol.String(), agent.ResponseProtocol.String(), agent.MessageProtocol.String(), agent.GeminiProtocol.String()},
	}}
}

// openCode configures OpenCode by its environment, which goes before what files say. It loads the plugins of a repository whatever it is told, so that a
// repository that has some cannot be worked in under a policy.
func openCode(p *driver.Prompt, env *backend.Env, all bool) (*backend.Command, error) {
	permission := "allow"
	c := &backend.Command{Path: "opencode", Args: []string{"acp"}, Dir: p.Dir, Env: map[string]string{
		keyVar: env.Key, "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_DISABLE_SHARE": "1",
	}}
	if !all {
		permission = "ask"
		c.Env["OPENCODE_DISABLE_PROJECT_CONFIG"], c.Env["OPENCODE_PURE"] = "1", "1"
		if path := openCodePlugin(p.Dir); path != "" {
			return nil, &agent.Error{
				Kind: agent.Denied, Msg: fmt.Sprintf("OpenCode would run code of the workspace without asking: %s", path),
				Hint: "remove it, or give the agent the permissions \"all\"",
			}
		}
	}
	model := map[string]any{"name": p.Model, "tool_call": true, "attachment": true, "modalities": map[string]any{"input": []string{"text", "image"}, "output": []string{"text"}}, "limit": map[string]any{"context": 200_000, "output": 16_000}}
	config, err := json.Marshal(map[string]any{
		"autoupdate": false, "share": "disabled", "model": "skep/" + p.Model, "small_model": "skep/" + p.Model, "enabled_providers": []string{"skep"},
		"provider": map[string]any{"skep": map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": "Skep", "options": map[string]any{"baseURL": env.Models + "/v1", "apiKey": "{env:" + keyVar + "}"},
			"models": map[string]any{p.Model: model},
		}},
		"permission":   map[string]any{"*": permission},
		"experimental": map[string]any{"continue_loop_on_deny": true},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the configuration of OpenCode: %w", err)
	}
	c.Env["OPENCODE_CONFIG_CONTENT"] = string(config)
	return c, nil
}

// openCodePlugin is a file of the workspace, or above it in its repository, by which OpenCode would run code of its own accord, or "".
func openCodePlugin(dir string) string {
	for {
		config := filepath.Join(dir, ".opencode")
		for _, name := range []string{"plugin", "plugins", "tool", "tools"} {
			if path := filepath.Join(config, name); exists(path) {
				return path
			}
		}
		for _, folder := range []string{dir, config} {
			for _, name := range []string{"opencode.json", "opencode.jsonc"} {
				path := filepath.Join(folder, name)
				text, err := os.ReadFile(path)
				if err != nil && os.IsNotExist(err) {
					continue
				}
				if err != nil || strings.Contains(string(text), "plugin") || strings.Contains(string(text), `\u`) { // \u, so that no name is hidden
					return path
				}
			}
		}
		up := filepath.Dir(dir)
		if up == dir || exists(filepath.Join(dir, ".git")) {
			return ""
		}
		dir = up
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// anyAgent runs the command of the prompt. It finds the gateway where the SDKs of the vendors look for it, and the model in SKEP_MODEL.
func anyAgent(p *driver.Prompt, env *backend.Env, _ bool) (*backend.Command, error) {
	if len(p.Command) == 0 || p.Command[0] == "" {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "an agent with the CLI acp needs a command", Hint: "name the program that speaks ACP, and its arguments"}
	}
	return &backend.Command{Path: p.Command[0], Args: p.Command[1:], Dir: p.Dir, Env: map[string]string{
		keyVar: env.Key, "SKEP_MODELS": env.Models, "SKEP_MODEL": p.Model,
		"OPENAI_BASE_URL": env.Models + "/v1", "OPENAI_API_KEY": env.Key,
		"ANTHROPIC_BASE_URL": env.Models, "ANTHROPIC_AUTH_TOKEN": env.Key,
		"GOOGLE_GEMINI_BASE_URL": env.Models, "GEMINI_API_KEY": env.Key,
	}}, nil
}
