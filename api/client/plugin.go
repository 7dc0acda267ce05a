package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"

	"github.com/skep-dev/skep/agent"
)

// Upload is a plugin to store: a WebAssembly module, a script, or a zip package.
type Upload struct {
	Name, Version string // those of the package's manifest unless given
	Filename      string // tells a script's language
	Type          string // media type; may be empty
	Body          []byte
}

func (u Upload) query() query {
	return query{"name": u.Name, "version": u.Version, "filename": u.Filename}
}

// Progress tells how far an upload has come. Done and Total count bytes or steps of Stage.
type Progress struct {
	Stage       string `json:"stage"`
	Done, Total int64
}

// Checked is what preparing code without storing it found out.
type Checked struct {
	Exports []string `json:"exports"`
	Fetch   bool     `json:"fetch"`
}

// PutPlugin stores code. progress is called from this goroutine and may be nil.
func (c *Client) PutPlugin(ctx context.Context, u Upload, progress func(Progress)) (p agent.Plugin, err error) {
	return p, c.upload(ctx, u.query(), u, once(), progress, &p)
}

// CheckPlugin prepares code and stores nothing.
func (c *Client) CheckPlugin(ctx context.Context, u Upload, progress func(Progress)) (out Checked, err error) {
	q := u.query()
	q["check"] = "true"
	return out, c.upload(ctx, q, u, header{}, progress, &out)
}

func (c *Client) upload(ctx context.Context, q query, u Upload, h header, progress func(Progress), out any) error {
	h["Content-Type"] = u.Type
	if u.Type == "" {
		h["Content-Type"] = "application/octet-stream"
	}
	h["Accept"] = typeNDJSON
	res, err := c.send(ctx, "POST", path("plugins")+q.encode(), h, u.Body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for {
		b, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return &agent.Error{Kind: agent.Unavailable, Msg: "the server stopped before the upload was done", Hint: "try again"}
		}
		if err != nil {
			return c.unreachable(ctx, err)
		}
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		var line struct {
			Progress
			Result json.RawMessage `json:"result"`
			Error  *problem        `json:"error"`
		}
		if err := json.Unmarshal(b, &line); err != nil {
			return agent.Wrap(agent.Internal, err, "the server's answer is not understood")
		}
		switch {
		case line.Error != nil && line.Error.Kind != nil:
			return line.Error.error(0)
		case line.Result != nil:
			if err := json.Unmarshal(line.Result, out); err != nil {
				return agent.Wrap(agent.Internal, err, "the server's answer is not understood")
			}
			return nil
		case progress != nil:
			progress(line.Progress)
		}
	}
}

// Plugins lists plugins, newest first.
func (c *Client) Plugins(ctx context.Context, p agent.Page) (List[agent.Plugin], error) {
	return get[List[agent.Plugin]](ctx, c, path("plugins")+pageQuery(p).encode())
}

// Plugin returns the plugin that a name, a name@version or a digest means.
func (c *Client) Plugin(ctx context.Context, ref string) (agent.Plugin, error) {
	return get[agent.Plugin](ctx, c, path("plugins", ref))
}

// PluginContent returns a plugin's file and a name for it.
func (c *Client) PluginContent(ctx context.Context, ref string) (name string, body []byte, err error) {
	res, err := c.send(ctx, "GET", path("plugins", ref, "content"), nil, nil)
	if err != nil {
		return "", nil, err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return "", nil, c.unreachable(ctx, err)
	}
	_, params, _ := mime.ParseMediaType(res.Header.Get("Content-Disposition"))
	return params["filename"], body, nil
}
