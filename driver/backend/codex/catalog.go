package codex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// maxCatalog is the most bytes of the catalogue that the CLI shows.
const maxCatalog = 16 << 20

// defaultContext is the number of tokens that a model is taken to hold of which nothing is known.
const defaultContext = 200_000

// writeCatalog writes a catalogue of models that has the one of p, and returns its path. Codex offers apply_patch, and knows how to speak to a model, only for
// models in its catalogue; names of the gateway, such as @main, are in none. So the entry is made of one of the CLI's own.
func writeCatalog(ctx context.Context, env *backend.Env, home string, p *driver.Prompt) (string, error) {
	text, err := bundled(ctx, env, p.Dir, home)
	if err != nil {
		return "", err
	}
	out, err := catalogFor(text, p.Model)
	if err != nil {
		return "", err
	}
	path := filepath.Join(home, "skep-models.json")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		return "", fmt.Errorf("write the catalogue of models: %w", err)
	}
	return path, nil
}

// bundled is the catalogue that the CLI brings along. It takes some 15 ms.
func bundled(ctx context.Context, env *backend.Env, dir, home string) ([]byte, error) {
	proc, err := env.Spawn(ctx, &backend.Command{Path: "codex", Args: []string{"debug", "models", "--bundled"}, Dir: dir, Env: map[string]string{"CODEX_HOME": home}})
	if err != nil {
		return nil, err
	}
	_ = proc.CloseInput()
	stop := context.AfterFunc(ctx, func() { _ = proc.Signal("KILL", true) })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(proc, maxCatalog))
	if len(text) == maxCatalog {
		_ = proc.Signal("KILL", true)
		err = errors.New("it is too long")
	}
	if d := proc.Wait(); err == nil && d.Code != 0 {
		err = fmt.Errorf("codex debug models has exited with code %d: %.500s", d.Code, d.Tail)
	}
	return text, err
}

// catalogFor returns a catalogue with one entry, for model. A model of OpenAI's that Codex knows keeps what is said of it there, and only its name is
// another. Of any other, it is not known whether it can be told how hard to think, so it is not told; a route can say that (Candidate.Effort).
func catalogFor(text []byte, model string) ([]byte, error) {
	var c struct {
		Models []map[string]any `json:"models"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("read the catalogue of models: %w", err)
	}
	known := model[strings.LastIndexByte(model, '/')+1:]
	var entry, plain map[string]any
	for _, m := range c.Models {
		if m["slug"] == known {
			entry = m
		}
		if m["apply_patch_tool_type"] == "freeform" && m["tool_mode"] == nil && m["use_responses_lite"] != true {
			plain = m
		}
	}
	if plain == nil {
		return nil, errors.New("no model of the catalogue has simple tools")
	}
	if entry == nil {
		entry = plain
		entry["supported_reasoning_levels"], entry["default_reasoning_level"] = []any{}, nil
		entry["support_verbosity"], entry["default_verbosity"] = false, nil
		entry["context_window"], entry["max_context_window"] = defaultContext, defaultContext
	}
	// These need OpenAI's own service behind them, and not a gateway that may ask anybody.
	for _, field := range []string{"tool_mode", "upgrade", "availability_nux", "comp_hash"} {
		delete(entry, field)
	}
	entry["use_responses_lite"], entry["supports_search_tool"] = false, false
	entry["additional_speed_tiers"], entry["service_tiers"] = []any{}, []any{}
	entry["slug"], entry["display_name"], entry["visibility"], entry["priority"] = model, model, "list", 0
	return json.Marshal(map[string]any{"models": []any{entry}})
}
