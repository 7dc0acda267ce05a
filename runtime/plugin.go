package runtime

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/store"
)

// Upload is a plugin package as it arrives. Name and Version win over the package's manifest.
type Upload struct {
	Name, Version string
	Filename      string // tells a script's language; may be empty
	Type          string // media type; may be empty
	Body          []byte
}

// PutPlugin checks, prepares and stores code. It tells whether the same code was there already under this name and
// version. progress may be nil.
//
// A plugin's digest is that of what is stored: a module and an archive as they came, a single text file as a canonical package
// of one file, because its name tells its language. A plugin without a version gets "0-" and the first 12 digits of
// its digest, so each change of the code is a version of its own.
func (r *Runtime) PutPlugin(ctx context.Context, app agent.App, up Upload, once store.Once, progress func(host.Progress)) (agent.Plugin, bool, error) {
	src, manifest, body, err := r.open(up)
	if err != nil {
		return agent.Plugin{}, false, err
	}
	p := agent.Plugin{
		App: app, Name: cmp.Or(up.Name, manifest.Name), Version: cmp.Or(up.Version, manifest.Version), Digest: agent.DigestOf(body),
		Kind: src.Kind, Main: src.Main, Asks: manifest.Grants, Size: int64(len(up.Body)), Created: time.Now().UTC(),
	}
	if p.Version == "" {
		p.Version = "0-" + p.Digest.Hex()[:12]
	}
	if err := checkPlugin(p); err != nil {
		return agent.Plugin{}, false, err
	}
	prepared, err := r.cells.Prepare(ctx, host.Who{App: app, Weight: r.weight(ctx, app)}, src, progress)
	if err != nil {
		return agent.Plugin{}, false, err
	}
	if err := plugins.CheckImports(src, manifest); err != nil {
		return agent.Plugin{}, false, err
	}
	if err := errors.Join(manifest.Tools.Check(prepared.Exports), manifest.MCP.Check(prepared.Exports)); err != nil {
		return agent.Plugin{}, false, err
	}
	p.Exports = prepared.Exports
	if _, err := r.store.PutBlob(ctx, body); err != nil {
		return agent.Plugin{}, false, err
	}
	p, replayed, err := r.store.PutPlugin(ctx, p, once)
	r.records.pushed(app, p.Name)
	r.touchTools(app)
	return p, replayed, err
}

// Check prepares code and stores nothing.
func (r *Runtime) Check(ctx context.Context, app agent.App, up Upload) (host.Prepared, error) {
	src, manifest, _, err := r.open(up)
	if err != nil {
		return host.Prepared{}, err
	}
	prepared, err := r.cells.Prepare(ctx, host.Who{App: app, Weight: r.weight(ctx, app)}, src, nil)
	if err != nil {
		return host.Prepared{}, err
	}
	return prepared, plugins.CheckImports(src, manifest)
}

// LoadSource returns stored code. A host asks for it when it has no image.
func (r *Runtime) LoadSource(ctx context.Context, d agent.Digest) (agent.Source, error) {
	body, err := r.store.Blob(ctx, d)
	if err != nil {
		return agent.Source{}, err
	}
	src, _, err := plugins.Open("", "", body, plugins.Unlimited())
	return src, err
}

// Content returns a plugin as it was uploaded, with a file name for it.
func (r *Runtime) Content(ctx context.Context, app agent.App, ref string) (name string, body []byte, err error) {
	p, err := r.store.Plugin(ctx, app, ref)
	if err != nil {
		return "", nil, err
	}
	body, err = r.store.Blob(ctx, p.Digest)
	if err != nil {
		return "", nil, err
	}
	if int64(len(body)) != p.Size { // a script that was packed to be stored
		src, _, err := plugins.Open("", "", body, plugins.Unlimited())
		return p.Main, src.Files[p.Main], err
	}
	if p.Kind == agent.Wasm && p.Main == "main.wasm" {
		return p.Name + ".wasm", body, nil
	}
	return p.Name + ".zip", body, nil
}

// open reads an upload; body is what would be stored.
func (r *Runtime) open(up Upload) (src agent.Source, m plugins.Manifest, body []byte, err error) {
	src, m, err = plugins.Open(up.Filename, up.Type, up.Body, &r.opts.Packages)
	if err != nil {
		return src, m, nil, err
	}
	if whole := src.Files[src.Main]; src.Kind != agent.Wasm && len(src.Files) == 1 && len(whole) == len(up.Body) {
		body, err = plugins.Pack(src.Files)
		return src, m, body, err
	}
	return src, m, up.Body, nil
}

func checkPlugin(p agent.Plugin) error {
	if p.Name == "" {
		return &agent.Error{
			Kind: agent.Invalid, Msg: "the plugin has no name",
			Hint: `give one with the upload (?name=), or in the package's skep.json: {"name": "..."}`,
		}
	}
	if err := agent.CheckName("plugin", p.Name); err != nil {
		return err
	}
	return agent.CheckVersion(p.Version)
}
