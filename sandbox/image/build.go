package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Build makes an image. When it fails or ctx ends, the engine has the images that it had before, and the cache has nothing that is not whole.
// An image of that name that was made of the same files is left as it is.
func Build(ctx context.Context, e *Engine, s Spec) (Image, error) {
	if err := s.check(); err != nil {
		return Image{}, err
	}
	s.step("asking the engine")
	arch, err := e.processor(ctx)
	if err != nil {
		return Image{}, err
	}
	if s.Base == Host && (runtime.GOOS != "linux" || runtime.GOARCH != arch) {
		return Image{}, &agent.Error{Kind: agent.Invalid, Hint: "make it with --base IMAGE or --base debian",
			Msg: fmt.Sprintf("the engine runs linux on %s, and programs of this machine are for %s on %s", arch, runtime.GOOS, runtime.GOARCH)}
	}
	b := &builder{Spec: s, engine: e, tree: newTree(), manifest: Manifest{Base: s.Base, Created: s.Now.UTC().Truncate(time.Second)}}
	b.manifest.Programs = slices.Concat(s.Programs, s.More)
	if b.cpu, err = cpuOf(arch); err != nil && len(s.CLIs)+len(s.Packages) > 0 {
		return Image{}, err
	}
	defer b.clean()
	if err := b.fetchAll(ctx); err != nil {
		return Image{}, err
	}
	if err := b.base(ctx); err != nil {
		return Image{}, err
	}
	layout(b.tree)
	for _, p := range b.packs {
		if err := p.place(b.tree, b.node); err != nil {
			return Image{}, err
		}
	}
	return b.finish(ctx)
}

// builder is one build.
type builder struct {
	Spec
	engine   *Engine
	cpu      cpu
	packs    []*pack
	node     string // in the image: runs the packs that are not native
	tree     *tree
	manifest Manifest
	cleanups []func()
}

func (b *builder) clean() {
	for _, f := range b.cleanups {
		f()
	}
}

// fetchAll gets the CLIs and the packages of npm, and node when one of them needs it.
func (b *builder) fetchAll(ctx context.Context) error {
	for _, word := range b.CLIs {
		k, version, err := findCLI(word)
		if err != nil {
			return err
		}
		p, err := b.fetchKnown(ctx, k, version, b.cpu)
		if err != nil {
			return err
		}
		b.add(p)
	}
	for _, word := range b.Packages {
		name, ok := strings.CutPrefix(word, "npm:")
		if !ok {
			continue
		}
		p, err := b.fetchPackage(ctx, name, b.cpu)
		if err != nil {
			return err
		}
		b.add(p)
	}
	if !slices.ContainsFunc(b.packs, func(p *pack) bool { return !p.native }) {
		return nil
	}
	p, err := b.fetchKnown(ctx, node, "", b.cpu)
	if err != nil {
		return err
	}
	b.node = cliDir + "/node/" + p.starts["node"]
	if b.Base != Host && b.Base != Debian {
		p.starts = nil // the base may have a node of its own
	}
	b.add(p)
	return nil
}

// add puts a pack into the image, once.
func (b *builder) add(p *pack) {
	if slices.ContainsFunc(b.packs, func(other *pack) bool { return other.dir == p.dir }) {
		return
	}
	b.packs = append(b.packs, p)
	b.manifest.add(p.cli)
}

// programs are the files of the host that run by themselves in the image.
func (b *builder) programs() []string {
	var files []string
	for _, p := range b.packs {
		if !p.native {
			continue
		}
		for _, file := range p.starts {
			files = append(files, filepath.Join(p.dir, file))
		}
	}
	slices.Sort(files)
	return files
}

// base adds the files of the base, and what of the packs has to be beside them.
func (b *builder) base(ctx context.Context) error {
	switch b.Base {
	case Host:
		b.step("reading the programs of this machine")
		return hostBase(b.tree, b.Programs, b.More, b.programs())
	case Debian:
		return b.debian(ctx)
	}
	return b.onImage(ctx)
}

// finish gives the files to the engine, unless it has them.
func (b *builder) finish(ctx context.Context) (Image, error) {
	b.step("reading the files")
	l := layer{tree: b.tree, leaves: b.Base != Host && b.Base != Debian}
	sum, bytes, err := l.digest(ctx)
	if err != nil {
		return Image{}, readError(err)
	}
	b.manifest.Layer = sum
	b.Name = strings.ReplaceAll(b.Name, "{layer}", sum[:12])
	old, err := b.engine.inspect(ctx, b.Name)
	if err != nil && agent.KindOf(err) != agent.NotFound {
		return Image{}, err
	}
	if err == nil && b.manifest.same(&old.Manifest) {
		old.Reused = true
		return old, nil
	}
	changes, err := b.manifest.changes()
	if err != nil {
		return Image{}, err
	}
	id, err := b.stream(ctx, l, bytes, changes)
	if err != nil {
		return Image{}, err
	}
	if old.ID != "" && old.ID != id {
		b.engine.forget(ctx, old.ID)
	}
	return b.engine.inspect(ctx, b.Name)
}

// same reports whether two images were made of the same, whenever that was.
func (m *Manifest) same(other *Manifest) bool {
	return m.Layer == other.Layer && m.Base == other.Base && slices.Equal(m.Packages, other.Packages) && slices.Equal(m.Programs, other.Programs)
}

// stream writes the files to the engine while they are read.
func (b *builder) stream(ctx context.Context, l layer, bytes int64, changes []string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := b.write(ctx, l, bytes, changes, w)
		w.CloseWithError(err)
		wrote <- err
	}()
	var id string
	var err error
	if l.leaves {
		id, err = b.engine.build(ctx, r, b.Name)
	} else {
		id, err = b.engine.load(ctx, r, b.Name, changes)
	}
	r.Close()                                                               // the engine has given its answer: nothing more is read
	if werr := <-wrote; werr != nil && !errors.Is(werr, io.ErrClosedPipe) { // else what the engine says is why
		return "", readError(werr)
	}
	return id, err
}

// write writes what the engine is given: the layer, or a build context around it.
func (b *builder) write(ctx context.Context, l layer, bytes int64, changes []string, w io.Writer) error {
	p := Progress{Step: "giving it to the engine", Total: b.tree.size()}
	moved := func(n int64) {
		if p.Done += n; b.Progress != nil {
			b.Progress(p)
		}
	}
	if l.leaves {
		return writeContext(w, b.Base, changes, bytes, func(w io.Writer) error { return l.writeTo(ctx, w, moved) })
	}
	return l.writeTo(ctx, w, moved)
}

// readError says what an error of reading the files of an image means.
func readError(err error) error {
	if agent.KindOf(err) != agent.Internal {
		return err
	}
	return agent.Wrap(agent.Unavailable, err, "read the files of the image")
}
