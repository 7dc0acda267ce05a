package skep

import "github.com/skep-dev/skep/abi"

// Artifact is what a tool returns in place of a value that is large, or no JSON: a file of the session, for ReadFile.
type Artifact struct {
	Path string `json:"artifact"`
	Type string `json:"type"` // media type
	Size int64  `json:"size"`
}

// FileInfo is what is known of a file of the session: its path, media type and size.
type FileInfo = abi.FileInfo

// ReadFile reads a file of the session, such as an artifact of a tool, whole.
func ReadFile(path string) ([]byte, error) {
	var all []byte
	for {
		b, info, err := ReadFilePart(path, int64(len(all)), 0)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
		if len(b) == 0 || int64(len(all)) >= info.Size {
			return all, nil
		}
	}
}

// ReadFilePart reads up to length bytes of a file of the session from offset on; a length of 0 is as many as the host gives at once, which
// are 4 MiB.
func ReadFilePart(path string, offset, length int64) ([]byte, FileInfo, error) {
	var part abi.FilePart
	err := ask(abi.CallFileRead, abi.FileRead{Path: path, Offset: offset, Length: length}, &part)
	return part.Body, part.FileInfo, err
}

// WriteFile writes a file of the session, whole.
func WriteFile(path, mediaType string, body []byte) error {
	return ask(abi.CallFilePut, abi.FilePut{Path: path, Type: mediaType, Body: body}, nil)
}

// ListFiles lists the files of the session whose paths begin with prefix, in the order of their paths.
func ListFiles(prefix string) ([]FileInfo, error) {
	var all []FileInfo
	for after := ""; ; {
		var page abi.Files
		if err := ask(abi.CallFileList, abi.FileList{Prefix: prefix, After: after, Limit: 1000}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Files...)
		if after = page.After; after == "" {
			return all, nil
		}
	}
}

// Instructions are what the AGENTS.md of the agent's package and of the session's files say of a path.
type Instructions = abi.Instructions

// ReadInstructions returns those for a file or a folder of the session, the root when path is empty. The nearest file is last, and wins where they differ. They are
// input like any file: they grant nothing.
func ReadInstructions(path string) (Instructions, error) {
	var all Instructions
	err := ask(abi.CallInstructions, abi.InstructionsOf{Path: path}, &all)
	return all, err
}

// SkillInfo is the name of a skill and what it is for.
type SkillInfo = abi.SkillInfo

// ListSkills lists the skills that were granted.
func ListSkills() ([]SkillInfo, error) {
	var list abi.Skills
	err := ask(abi.CallSkillList, nil, &list)
	return list.Skills, err
}

// LoadSkill loads a file of a skill, SKILL.md when path is empty, and says which files there are.
func LoadSkill(name, path string) (text string, files []string, err error) {
	var skill abi.SkillText
	err = ask(abi.CallSkillLoad, abi.SkillLoad{Name: name, Path: path}, &skill)
	return skill.Text, skill.Files, err
}
