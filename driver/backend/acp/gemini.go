package acp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

const geminiName = "gemini"

// gemini configures the Gemini CLI by the settings of the user; it takes those of the system only from folders that are root's. Under a policy the workspace
// is one that is not trusted: the CLI leaves its settings, hooks, servers and environment alone, and asks.
func gemini(p *driver.Prompt, env *backend.Env, all bool) (*backend.Command, error) {
	home := filepath.Join(env.Home, ".gemini")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the Gemini CLI: %w", err)
	}
	if err := geminiSettings(filepath.Join(home, "settings.json"), all); err != nil {
		return nil, fmt.Errorf("write the settings of the Gemini CLI: %w", err)
	}
	if p.Resume != "" {
		if err := geminiAside(home, p.Resume, time.Now()); err != nil {
			return nil, fmt.Errorf("put a session of the Gemini CLI aside: %w", err)
		}
	}
	mode := "default"
	if all {
		mode = "yolo"
	}
	return &backend.Command{Path: "gemini", Args: []string{"--acp", "-m", p.Model, "--approval-mode", mode}, Dir: p.Dir, Env: map[string]string{
		"GEMINI_API_KEY": env.Key, "GOOGLE_GEMINI_BASE_URL": env.Models, "GEMINI_CLI_TRUSTED_FOLDERS_PATH": filepath.Join(home, "skep-trusted.json"), "NO_BROWSER": "true",
	}}, nil
}

// geminiSettings puts what has to be so into the settings at path. What else is there stays, unless it cannot be read.
func geminiSettings(path string, all bool) error {
	settings := map[string]any{}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &settings) != nil || settings == nil {
		settings = map[string]any{}
	}
	for _, at := range []struct {
		path  []string
		value any
	}{
		{[]string{"security", "auth", "selectedType"}, "gemini-api-key"}, {[]string{"security", "folderTrust", "enabled"}, !all},
		{[]string{"general", "maxAttempts"}, 2}, {[]string{"general", "enableAutoUpdate"}, false}, {[]string{"general", "enableAutoUpdateNotification"}, false},
		{[]string{"privacy", "usageStatisticsEnabled"}, false}, {[]string{"telemetry", "enabled"}, false},
	} {
		set(settings, at.path, at.value)
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// set sets a field of an object, which it makes where there is none.
func set(object map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[len(path)-1]] = value
}

// geminiMinute is the time in the name of a file of a session.
const geminiMinute = "2006-01-02T15-04"

// geminiAside leaves of the files of a session the one in which it was said most, under a name that is no file's of now. The CLI names a session's file by the
// minute and the first 8 characters of its id, and begins a new one before it reads the old: one that was begun in the same minute is lost. What it has begun
// stays beside the one that it then goes on with, and at the next load it is taken for the session, though there is nothing in it.
func geminiAside(home, id string, now time.Time) error {
	if len(id) < 8 || strings.ContainsAny(id, `/*?[]\`) {
		return nil
	}
	list, err := filepath.Glob(filepath.Join(home, "tmp", "*", "chats", "session-*-"+id[:8]+".json*"))
	if err != nil {
		return err
	}
	kept, most := "", int64(-1)
	for _, path := range list {
		if st, err := os.Stat(path); err == nil && st.Size() > most {
			kept, most = path, st.Size()
		}
	}
	for _, path := range list {
		if path == kept {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for _, minute := range []time.Time{now.UTC(), now.UTC().Add(-time.Minute), now.UTC().Add(time.Minute)} {
		if strings.HasPrefix(filepath.Base(kept), "session-"+minute.Format(geminiMinute)) {
			return os.Rename(kept, olderName(kept, id, minute))
		}
	}
	return nil
}

// olderName is path with the name of an hour before, or of as many as are free.
func olderName(path, id string, minute time.Time) string {
	for {
		minute = minute.Add(-time.Hour)
		to := filepath.Join(filepath.Dir(path), "session-"+minute.Format(geminiMinute)+"-"+id[:8]+filepath.Ext(path))
		if !exists(to) {
			return to
		}
	}
}
