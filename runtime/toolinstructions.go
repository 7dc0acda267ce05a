package runtime

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// instructionFile is the name that instructions for agents have, by folder (agents.md).
const instructionFile = "AGENTS.md"

// Bounds of instructions. What is nearer to the path has the room first.
const (
	maxInstruction  = 32 << 10 // bytes that are taken of one file
	maxInstructions = 64 << 10 // of all
	maxFolders      = 32       // that are looked into, the deepest ones
)

// instructions answers file.instructions: what the AGENTS.md of the agent's package and of the session's files say of a path. Nothing of it is run, and nothing
// is granted by it.
func (b *toolbox) instructions(ctx context.Context, in []byte) ([]byte, error) {
	var q abi.InstructionsOf
	if len(in) > 0 {
		if err := grant.Decode(in, &q); err != nil {
			return nil, err
		}
	}
	folders, err := foldersOf(q.Path)
	if err != nil {
		return nil, err
	}
	var found []instruction // the nearest first
	if b.job.Session != "" {
		for _, dir := range folders {
			f, body, err := b.r.store.ReadFile(ctx, b.job.App, b.job.Session, dir+instructionFile, 0, maxInstruction)
			if err != nil && agent.KindOf(err) == agent.NotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = append(found, instruction{"session", f.Path, body, f.Size})
		}
	}
	packed, err := b.packed(ctx)
	if err != nil {
		return nil, err
	}
	for _, dir := range folders {
		if body, ok := packed[dir+instructionFile]; ok {
			found = append(found, instruction{"package", dir + instructionFile, body[:min(len(body), maxInstruction)], int64(len(body))})
		}
	}
	return encode(joined(found)), nil
}

// foldersOf lists the folders of a path, the path itself first and the root last, each with a slash behind it but for the root.
func foldersOf(path string) ([]string, error) {
	path = strings.Trim(path, "/")
	if path == "" {
		return []string{""}, nil
	}
	if err := agent.CheckPath(path); err != nil {
		return nil, err
	}
	var out []string
	for dir := path; dir != "" && len(out) < maxFolders; {
		out = append(out, dir+"/")
		dir = dir[:max(strings.LastIndexByte(dir, '/'), 0)]
	}
	return append(out, ""), nil
}

// packed are the files of the agent's package; none of a script of code mode, which is no package of the agent's.
func (b *toolbox) packed(ctx context.Context) (map[string][]byte, error) {
	if b.job.plugin == "" || b.script {
		return nil, nil
	}
	src, err := b.r.LoadSource(ctx, b.job.plugin)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			return nil, nil
		}
		return nil, err
	}
	return src.Files, nil
}

// instruction is one file, as it is where it comes from.
type instruction struct {
	from, path string
	body       []byte
	size       int64
}

// joined is what a model is shown: each file in brackets that say where it is from, the nearest last. A text cannot close its own.
func joined(found []instruction) abi.Instructions {
	out := abi.Instructions{Files: []abi.InstructionFile{}}
	room := maxInstructions
	var texts []string
	for _, f := range found {
		text := strings.ToValidUTF8(string(bytes.ReplaceAll(f.body[:min(len(f.body), room)], []byte{0}, nil)), "")
		if strings.TrimSpace(text) == "" {
			continue
		}
		room -= len(text)
		cut := f.size > int64(len(text))
		out.Files = append(out.Files, abi.InstructionFile{Path: f.path, From: f.from, Size: f.size, Cut: cut})
		text = strings.ReplaceAll(text, "</instructions", "<\\/instructions")
		if cut {
			text += "\n[cut: " + fmt.Sprint(f.size) + " bytes in all]"
		}
		texts = append(texts, fmt.Sprintf("<instructions from=%q file=%q>\n%s\n</instructions>\n", f.from, f.path, strings.TrimSpace(text)))
	}
	slices.Reverse(texts)
	out.Text = strings.Join(texts, "")
	slices.Reverse(out.Files)
	return out
}
