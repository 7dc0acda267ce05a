package agent

import "time"

// Skill is a folder of instructions with a SKILL.md, which code and models load when they need it.
type Skill struct {
	App           App    `json:"app"`
	Name          string `json:"name"`        // 1 to 64 of a-z, 0-9 and -
	Description   string `json:"description"` // up to 1024 characters: what it is for and when to load it
	License       string `json:"license,omitempty"`
	Compatibility string `json:"compatibility,omitempty"` // up to 500 characters: what it needs around it, in words

	Metadata map[string]string `json:"metadata,omitempty"` // whatever its author says of it

	Allowed []string    `json:"allowed_tools,omitempty"` // that it would like to use: a request, which grants nothing
	Files   []SkillFile `json:"files"`                   // SKILL.md among them, sorted by path
	Digest  Digest      `json:"digest"`                  // of all of it
	Rev     int64       `json:"rev"`
	Created time.Time   `json:"created"`
	Updated time.Time   `json:"updated"`
}

// SkillFile is one file of a skill.
type SkillFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}
