package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
)

// onImage makes ready for a layer above an image that the engine has: the image has to run the programs of the packs, and its users get one more.
func (b *builder) onImage(ctx context.Context) error {
	b.step("looking into %s", b.Base)
	base, err := b.engine.inspect(ctx, b.Base)
	if err != nil {
		return err
	}
	b.manifest.over(&base.Manifest)
	in, err := b.engine.open(ctx, b.Base)
	if err != nil {
		return err
	}
	defer in.close(context.WithoutCancel(ctx))
	for _, file := range b.programs() {
		if err := b.runsOn(ctx, in, file); err != nil {
			return err
		}
	}
	for name, with := range accounts {
		text, err := in.read(ctx, name)
		if err != nil {
			return err
		}
		if more := with(text); more != text {
			b.tree.write(name, 0o644, more)
		}
	}
	return nil
}

// runsOn returns an error when a base lacks the loader of a program, or a library: it looks where loaders look by themselves.
func (b *builder) runsOn(ctx context.Context, in *opened, file string) error {
	o, err := newLinker("").readObject(file)
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "read the program "+file)
	}
	if o.interp == "" {
		return nil
	}
	if found, err := in.hasAny(ctx, []string{""}, o.interp); err != nil {
		return err
	} else if !found {
		return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s is loaded by %s, which the image %s does not have", path.Base(file), o.interp, b.Base),
			Hint: "it needs a base with glibc, such as Debian or Ubuntu; Alpine has another libc"}
	}
	multi := strings.TrimSuffix(b.cpu.triple, "-unknown-linux-musl") + "-linux-gnu"
	dirs := []string{"/lib/" + multi, "/usr/lib/" + multi, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}
	for _, lib := range o.needed {
		if found, err := in.hasAny(ctx, dirs, lib); err != nil {
			return err
		} else if !found {
			return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%s needs the library %s, which the image %s does not have", path.Base(file), lib, b.Base),
				Hint: "install it in the base: libstdc++6, say, for Node"}
		}
	}
	return nil
}

// lookLabel is on containers that were only made to look into an image.
const lookLabel = Label + ".look"

// opened is a container that never runs, made to look into an image.
type opened struct {
	engine *Engine
	id     string
}

func (e *Engine) open(ctx context.Context, image string) (*opened, error) {
	made, err := e.api.ContainerCreate(ctx, client.ContainerCreateOptions{Image: image, Config: &container.Config{Cmd: []string{"sh"}, Labels: map[string]string{lookLabel: image}}})
	if err != nil {
		return nil, e.failed(err, "look into "+image)
	}
	return &opened{e, made.ID}, nil
}

func (o *opened) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, _ = o.engine.api.ContainerRemove(ctx, o.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}) // it holds nothing
}

// hasAny reports whether the file name is in one of the folders.
func (o *opened) hasAny(ctx context.Context, dirs []string, name string) (bool, error) {
	for _, dir := range dirs {
		_, err := o.engine.api.ContainerStatPath(ctx, o.id, client.ContainerStatPathOptions{Path: path.Join("/", dir, name)})
		if err == nil {
			return true, nil
		} else if !errdefs.IsNotFound(err) {
			return false, o.engine.failed(err, "look for "+name)
		}
	}
	return false, nil
}

// read returns a small text file; "" when it is not there.
func (o *opened) read(ctx context.Context, name string) (string, error) {
	got, err := o.engine.api.CopyFromContainer(ctx, o.id, client.CopyFromContainerOptions{SourcePath: name})
	if errdefs.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", o.engine.failed(err, "read "+name)
	}
	defer got.Content.Close()
	files := tar.NewReader(got.Content)
	h, err := files.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Size > 1<<20 {
		return "", &agent.Error{Kind: agent.Invalid, Msg: name + " of the base is no file of users or groups", Err: err}
	}
	b, err := io.ReadAll(files)
	if err != nil {
		return "", o.engine.failed(err, "read "+name)
	}
	return string(b), nil
}

// writeContext writes what a builder is given: a Dockerfile that adds a layer of size bytes to base, and the layer.
func writeContext(w io.Writer, base string, changes []string, size int64, layer func(io.Writer) error) error {
	dockerfile := "FROM " + base + "\nUSER 0\nADD layer.tar /\n" + strings.Join(changes, "\n") + "\n"
	out := tar.NewWriter(w)
	err := out.WriteHeader(&tar.Header{Name: "Dockerfile", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(dockerfile)), ModTime: epoch})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, dockerfile); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: "layer.tar", Typeflag: tar.TypeReg, Mode: 0o644, Size: size, ModTime: epoch}); err != nil {
		return err
	}
	if err := layer(out); err != nil {
		return err
	}
	return out.Close()
}
