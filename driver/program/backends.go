package program

import (
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/acp"
	"github.com/skep-dev/skep/driver/backend/claude"
	"github.com/skep-dev/skep/driver/backend/codex"
	"github.com/skep-dev/skep/driver/backend/pi"
)

// Backends are those that prompts can name.
func Backends() []backend.Backend {
	return []backend.Backend{claude.New(), codex.New(), acp.OpenCode(), acp.Gemini(), pi.New(), acp.Any()}
}
