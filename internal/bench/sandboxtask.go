//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
)

// firstRequests measures a task for Codex, by skep serve: from the request that starts the run until the provider is asked.
func firstRequests(ctx context.Context, b *bench) ([]Figure, error) {
	name, err := boxImage(ctx, "codex")
	if err != nil {
		fmt.Fprintf(b.progress, "Codex is not here: %s\n", err)
		f := alone("P16", requestName, Seconds, math.NaN(), Target{})
		f.Note = "not here: " + err.Error()
		return []Figure{f}, nil
	}
	var fs []Figure
	for _, pool := range []int{0, 1} {
		took, own, err := b.firstRequests(ctx, name, pool)
		if err != nil {
			return nil, err
		}
		what := requestName
		if pool > 0 {
			what += ", box of a pool"
		}
		f := alone("P16", what, Seconds, median(took), Target{})
		f.Note = "of that since the start of Codex's own process: " + Seconds.format(median(own))
		fs = append(fs, f)
	}
	return fs, nil
}

func (b *bench) firstRequests(ctx context.Context, imageName string, pool int) (took, own []float64, err error) {
	file, err := b.boxDriver(ctx)
	if err != nil {
		return nil, nil, err
	}
	asked := make(chan time.Time, 64)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- time.Now():
		default:
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, shortAnswer)
	}))
	defer up.Close()
	data := fmt.Sprint("tasks", pool)
	s, err := b.startSkep(ctx, filepath.Join(b.dir, data), "--sandbox", "docker", "--sandbox-driver", file, "--sandbox-dir", filepath.Join(b.dir, data+"s"), "--sandbox-pool", fmt.Sprint(pool))
	if err != nil {
		return nil, nil, err
	}
	api, err := docker.New(docker.FromEnv)
	if err != nil {
		s.stop()
		return nil, nil, err
	}
	defer func() { // what is in the pool outlives the server
		s.stop()
		err = errors.Join(err, removeBoxes(api, imageName), api.Close())
	}()
	c := client.New("http://"+s.addr, s.token, nil)
	if err := b.coder(ctx, c, up.URL, imageName); err != nil {
		return nil, nil, err
	}
	for round := range b.count(5, 3) + 1 {
		for len(asked) > 0 {
			<-asked
		}
		start := time.Now()
		run, err := c.StartRun(ctx, client.NewRun{Agent: "coder", Input: json.RawMessage(`{"task":"say what you think"}`)})
		if err != nil {
			return nil, nil, err
		}
		if run, err = ended(ctx, c, run.ID); err != nil {
			return nil, nil, err
		}
		select {
		case at := <-asked:
			began, err := cliBegan(ctx, c, run.ID)
			if err != nil {
				return nil, nil, err
			}
			if round > 0 {
				took, own = append(took, at.Sub(start).Seconds()), append(own, at.Sub(began).Seconds())
			}
		default:
			return nil, nil, fmt.Errorf("run %s has asked no model: it is %s: %v", run.ID, run.Status, run.Error)
		}
		if err := noBoxes(ctx, c, api, imageName, pool); err != nil {
			return nil, nil, err
		}
	}
	return took, own, nil
}

// shortAnswer is a stream of the Responses API.
var shortAnswer = func() string {
	const item = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Nothing.","annotations":[]}]}`
	const head = `"id":"resp_1","object":"response","created_at":1,"model":"m"`
	const usage = `{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":12}`
	out := ""
	for _, e := range [][2]string{
		{"response.created", `"response":{` + head + `,"status":"in_progress","output":[]}`},
		{"response.output_item.added", `"output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}`},
		{"response.output_text.delta", `"output_index":0,"content_index":0,"item_id":"msg_1","delta":"Nothing."`},
		{"response.output_item.done", `"output_index":0,"item":` + item},
		{"response.completed", `"response":{` + head + `,"status":"completed","output":[` + item + `],"usage":` + usage + `}`},
	} {
		out += fmt.Sprintf("event: %s\ndata: {\"type\":%q,%s}\n\n", e[0], e[0], e[1])
	}
	return out
}()

// coder makes an agent that works by Codex.
func (b *bench) coder(ctx context.Context, c *client.Client, url, imageName string) error {
	_, err := c.PutProvider(ctx, client.NewProvider{Provider: agent.Provider{Name: "bench", URL: url, Private: true, Protocols: []agent.Protocol{agent.ResponseProtocol}}})
	if err == nil {
		_, err = c.PutModelRoute(ctx, agent.ModelRoute{Name: "main", Candidates: []agent.Candidate{{Provider: "bench", Model: "m"}}})
	}
	if err == nil {
		_, err = c.PutEnvironment(ctx, agent.Environment{Name: "work", Image: imageName})
	}
	if err == nil {
		_, err = c.CreateAgent(ctx, client.NewAgent{
			Name: "coder", Grants: agent.Grants{Models: []agent.NamedGrant{{Name: "main"}}},
			Sandbox: &agent.SandboxUse{Environment: "work", CLI: "codex", Model: "@main"},
		})
	}
	if err != nil {
		return fmt.Errorf("make the agent of Codex: %w", err)
	}
	return nil
}

// ended waits for a run.
func ended(ctx context.Context, c *client.Client, id agent.RunID) (run agent.Run, err error) {
	return run, poll(ctx, "the end of run "+string(id), func() (bool, error) {
		run, err = c.Run(ctx, id)
		return err == nil && run.Status.Terminal(), err
	})
}

// cliBegan returns when the process of a run's CLI was started. Boxes have the clock of this machine.
func cliBegan(ctx context.Context, c *client.Client, id agent.RunID) (time.Time, error) {
	for e, err := range c.Events(ctx, client.RunLog(id), 0, false) {
		if err != nil {
			return time.Time{}, err
		}
		if e.Kind == agent.EventCLI && e.Name == driver.CLIStarted {
			return e.Time, nil
		}
	}
	return time.Time{}, fmt.Errorf("run %s does not tell of the start of its CLI", id)
}

// boxesOf lists the containers of an image, as few or many as there are.
func boxesOf(ctx context.Context, api *docker.Client, imageName string) ([]container.Summary, error) {
	got, err := api.ContainerList(ctx, docker.ContainerListOptions{All: true, Filters: docker.Filters{}.Add("ancestor", imageName)})
	return got.Items, err
}

// noBoxes waits until there are only so many containers of an image, and none is anybody's.
func noBoxes(ctx context.Context, c *client.Client, api *docker.Client, imageName string, pool int) error {
	return poll(ctx, "the boxes before to go", func() (bool, error) {
		known, err := c.Sandboxes(ctx, "", agent.Page{})
		if err != nil || slices.ContainsFunc(known.Items, func(sb agent.Sandbox) bool { return sb.For != "" }) {
			return false, err
		}
		list, err := boxesOf(ctx, api, imageName)
		return len(list) == pool, err
	})
}

// removeBoxes deletes the containers of an image.
func removeBoxes(api *docker.Client, imageName string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := boxesOf(ctx, api, imageName)
	for _, c := range list {
		_, gone := api.ContainerRemove(ctx, c.ID, docker.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, gone)
	}
	return err
}

// poll asks until the answer is yes.
func poll(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}
