//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/door"
	"github.com/skep-dev/skep/sandbox/image"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
)

// boxes is figure P16: how long it takes until a box is ready, beside containers without Skep; and what comes out of its driver.
func boxes(ctx context.Context, b *bench) ([]Figure, error) {
	rates, err := eventRates(ctx, b)
	if err != nil {
		return nil, err
	}
	if why := noDocker(ctx); why != "" {
		fmt.Fprintf(b.progress, "P16 is not here: %s\n", why)
		var fs []Figure
		for _, name := range []string{freshName, pooledName, requestName} {
			f := alone("P16", name, Seconds, math.NaN(), Target{})
			f.Note = "not here: " + why
			fs = append(fs, f)
		}
		return append(fs, rates...), nil
	}
	starts, err := boxStarts(ctx, b)
	if err != nil {
		return nil, err
	}
	first, err := firstRequests(ctx, b)
	return append(append(starts, first...), rates...), err
}

const (
	freshName   = "box made, started and ready, p50"
	pooledName  = "box of a pool started and ready, p50"
	requestName = "task to the first request of a model by Codex, p50"
)

// boxesFor is how long boxes are made when a machine is slow.
const boxesFor = 30 * time.Second

// noDocker says why there is no Docker; "" when there is.
func noDocker(ctx context.Context) string {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return "no Docker: " + err.Error()
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := api.Ping(ctx, client.PingOptions{}); err != nil {
		return "no Docker: " + err.Error()
	}
	return ""
}

// boxDriver builds skep-driver once and returns its path.
func (b *bench) boxDriver(ctx context.Context) (string, error) {
	return b.program(ctx, "skep-driver", "CGO_ENABLED=0")
}

// boxImage makes an image of programs of this machine, with CLIs of npm. It stays at the engine for the next run.
func boxImage(ctx context.Context, clis ...string) (string, error) {
	engine, err := image.Dial("")
	if err != nil {
		return "", err
	}
	defer engine.Close()
	im, err := image.Build(ctx, engine, image.Spec{
		Name: "skep-bench/" + strings.Join(append([]string{"box"}, clis...), "-") + ":{layer}", Base: image.Host,
		Programs: strings.Fields("sh bash env cat echo git grep id ls mkdir rm sed sleep tar true wc"), CLIs: clis,
	})
	return im.Name, err
}

// boxKeeper is a keeper that runs, of a store on the disk, with one environment.
type boxKeeper struct {
	*keeper.Keeper
	st    opened
	from  *docker.Provider
	owner string
	env   agent.Environment
	opens int
	stop  func() error
}

func (b *bench) boxKeeper(ctx context.Context, name, imageName string, pool int) (k *boxKeeper, err error) {
	k = &boxKeeper{owner: "skep-bench-" + strings.ToLower(rand.Text()[:8])}
	if k.from, err = docker.New(nil); err != nil {
		return nil, err
	}
	file, err := b.boxDriver(ctx)
	if err != nil {
		return nil, err
	}
	if k.st, err = openStore(ctx, filepath.Join(b.dir, name+"-store")); err != nil {
		return nil, err
	}
	k.env, err = k.st.PutEnvironment(ctx, agent.Environment{App: agent.DefaultApp, Name: "bench", Image: imageName, Size: agent.SandboxSize{Memory: 256 << 20}})
	if err == nil {
		k.Keeper, err = keeper.New(&keeper.Options{
			Providers: []sandbox.Provider{k.from}, Records: k.st.Store, Dir: filepath.Join(b.dir, name), Driver: file, Owner: k.owner, Pool: pool,
			Door: boxDoor,
			Events: func(ctx context.Context, sb agent.Sandbox, first int64, list []driver.Event) error {
				_, err := k.st.AppendOnce(ctx, store.AuditLog(sb.App), sb.Source(), first, logged(list))
				return err
			},
		})
	}
	if err != nil {
		return nil, errors.Join(err, k.st.close())
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- k.Run(run) }()
	k.stop = func() error {
		cancel()
		return errors.Join(<-ended, k.clear(), k.from.Close(), k.st.close())
	}
	return k, nil
}

// boxDoor is a door as skep serve makes it, to nowhere.
func boxDoor(sb agent.Sandbox, _ agent.Environment) (http.Handler, string, error) {
	d, err := door.New(&door.Options{Box: sb.ID, Secret: make([]byte, 32), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, "", err
	}
	return d, d.CA(), nil
}

// clear deletes what boxes are left.
func (k *boxKeeper) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := k.from.List(ctx, k.owner)
	for _, o := range list {
		err = errors.Join(err, k.from.Delete(ctx, o.Handle))
	}
	return err
}

// open opens a box, which is then deleted, and returns how long it took until it was ready.
func (k *boxKeeper) open(ctx context.Context) (time.Duration, error) {
	k.opens++
	whose := fmt.Sprint("run/", k.opens)
	start := time.Now()
	_, err := k.Open(ctx, keeper.Want{App: agent.DefaultApp, Agent: "bench", For: whose, Run: agent.RunID(fmt.Sprint("R", k.opens)), Keep: agent.Cattle, Environment: k.env})
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	return took, k.Release(ctx, agent.DefaultApp, whose)
}

// settle waits until there is nothing but so many boxes of the pool.
func (k *boxKeeper) settle(ctx context.Context, pool int) error {
	return poll(ctx, "the boxes before to go, and the pool to be full", func() (bool, error) {
		list, _, err := k.st.AllSandboxes(ctx, agent.Page{Limit: agent.MaxPage})
		used := func(rec agent.SandboxRecord) bool { return !rec.Pool || rec.Handle == "" }
		return len(list) == pool && !slices.ContainsFunc(list, used), err
	})
}

// bareBox makes and starts a container as docker run does, and returns how long it took until its program had said a line.
// It has no network, as a box has none: a network of its own would make it slower.
func bareBox(ctx context.Context, api *client.Client, imageName string) (took time.Duration, err error) {
	start := time.Now()
	made, err := api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: imageName, Cmd: []string{"echo", "hello"}, AttachStdout: true},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		_, gone := api.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, gone)
	}()
	out, err := api.ContainerAttach(ctx, made.ID, client.ContainerAttachOptions{Stream: true, Stdout: true})
	if err != nil {
		return 0, err
	}
	defer out.Close()
	if _, err := api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(out.Reader).ReadString('\n')
	if took = time.Since(start); err == nil && !strings.HasSuffix(line, "hello\n") {
		err = fmt.Errorf("the container said %q", line)
	}
	return took, err
}

// boxStarts measures boxes beside bare containers. One comes after the other, and who begins changes.
func boxStarts(ctx context.Context, b *bench) (_ []Figure, err error) {
	name, err := boxImage(ctx)
	if err != nil {
		return nil, err
	}
	api, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	fresh, err := b.boxKeeper(ctx, "f", name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fresh.stop()) }()
	pooled, err := b.boxKeeper(ctx, "p", name, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pooled.stop()) }()
	ways := []func() (time.Duration, error){
		func() (time.Duration, error) { return bareBox(ctx, api, name) },
		func() (time.Duration, error) { return fresh.open(ctx) },
		func() (time.Duration, error) { return pooled.open(ctx) },
	}
	if _, err := pooled.open(ctx); err != nil { // a pool is filled once it was asked
		return nil, err
	}
	took := make([][]float64, len(ways))
	began := time.Now()
	for round := range b.count(15, 5) + 1 { // in the first, everything is done for the first time
		if round > 3 && time.Since(began) > boxesFor {
			break
		}
		for i := range ways {
			way := (i + round) % len(ways)
			d, err := ways[way]()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				took[way] = append(took[way], d.Seconds())
			}
			if err := errors.Join(fresh.settle(ctx, 0), pooled.settle(ctx, 1)); err != nil {
				return nil, err
			}
		}
	}
	const peer = "docker run --network none"
	return []Figure{
		compare("P16", freshName, Seconds, took[1], took[0], peer, Target{Bound: 1.3}),
		compare("P16", pooledName, Seconds, took[2], took[0], peer, Target{Bound: 0.25}),
	}, nil
}
