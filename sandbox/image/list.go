package image

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
)

// List returns the images that were made here, newest first.
func (e *Engine) List(ctx context.Context) ([]Image, error) {
	got, err := e.api.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", Label)})
	if err != nil {
		return nil, e.failed(err, "list the images")
	}
	var list []Image
	for _, s := range got.Items {
		m := manifestOf(s.Labels)
		if m.Layer == "" {
			continue // another's, that says what it has
		}
		names := slices.DeleteFunc(slices.Clone(s.RepoTags), func(name string) bool { return name == "<none>:<none>" })
		for _, name := range names {
			list = append(list, Image{ID: s.ID, Name: name, Size: s.Size, Manifest: m})
		}
		if len(names) == 0 {
			list = append(list, Image{ID: s.ID, Size: s.Size, Manifest: m})
		}
	}
	slices.SortFunc(list, func(a, b Image) int {
		return cmp.Or(b.Manifest.Created.Compare(a.Manifest.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Delete deletes an image that was made here, by name or id. One that a container uses is agent.Conflict, one that something else has made agent.Denied.
func (e *Engine) Delete(ctx context.Context, name string) error {
	im, err := e.inspect(ctx, name)
	if err != nil {
		return err
	}
	if im.Manifest.Layer == "" {
		return &agent.Error{Kind: agent.Denied, Msg: name + " was not made by skep image build", Hint: "if it is to go: docker image rm " + name}
	}
	if _, err := e.api.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true}); err != nil {
		err = e.failed(err, "delete "+name)
		if agent.KindOf(err) == agent.Conflict {
			return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("%s is used by a container", name), Err: err, Hint: "delete the sandbox first: skep sandbox list"}
		}
		return err
	}
	return nil
}

// inspect returns an image by name or id, whoever has made it: Manifest.Layer is "" when that was another.
func (e *Engine) inspect(ctx context.Context, name string) (Image, error) {
	got, err := e.api.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return Image{}, &agent.Error{Kind: agent.NotFound, Msg: "the engine has no image " + name,
			Hint: "skep image list shows what was made here, docker image ls all; docker pull gets one from a registry"}
	} else if err != nil {
		return Image{}, e.failed(err, "find the image "+name)
	}
	im := Image{ID: got.ID, Name: name, Size: got.Size}
	if got.Config != nil {
		im.Manifest = manifestOf(got.Config.Labels)
	}
	return im, nil
}

// forget deletes an image that has lost its name to a newer one, unless it has another name or a container uses it.
func (e *Engine) forget(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	got, err := e.api.ImageInspect(ctx, id)
	if err != nil || len(got.RepoTags) > 0 || got.Config == nil || manifestOf(got.Config.Labels).Layer == "" {
		return
	}
	_, _ = e.api.ImageRemove(ctx, id, client.ImageRemoveOptions{PruneChildren: true}) // a sandbox may live in it: then it goes when List shows it
}

// manifestOf reads a label. One that says nothing, or what nobody here has written, is no manifest.
func manifestOf(labels map[string]string) Manifest {
	text := labels[Label]
	if plain, err := strconv.Unquote(`"` + text + `"`); err == nil { // Podman takes off the quotes of a value, and leaves what they have quoted
		text = plain
	}
	var m Manifest
	if json.Unmarshal([]byte(text), &m) != nil {
		return Manifest{}
	}
	return m
}
