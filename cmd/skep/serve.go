package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/python"
	"github.com/skep-dev/skep/host/worker"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/sandbox/preview"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/store/ledger"
)

// serveOptions are the flags of skep serve.
type serveOptions struct {
	listen string
	store  string // badger, pebble or memory; what is there, else badger, unless given
	cells  string // map or copy
	apart  string // process or inline; inline unless given
	hosts  []string

	origins []string
	public  string // URL by which people reach the server
	dir     string
	python  string // file of the Python interpreter, or ""
	cache   string // where compiled code is kept; below dir unless given
	vault   vaultOptions
	egress  egressOptions
	sandbox sandboxOptions
	log     *slog.Logger
}

func newServe(c *cli) *cobra.Command {
	var o serveOptions
	var format string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a server",
		Long: `Start a server. It makes its data directory, and at the first start writes the owner's access token to owner.token in it. It
stops after the calls under way when it gets SIGINT or SIGTERM, and at once at the second.`,
		Example: "  skep serve\n  skep serve --listen 127.0.0.1:0 --data /srv/skep --log-format json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.log, err = c.logger(format); err != nil {
				return err
			}
			if o.dir, err = c.dataDir(); err != nil {
				return err
			}
			if env := os.Getenv("SKEP_LISTEN"); env != "" && !cmd.Flags().Changed("listen") {
				o.listen = env
			}
			if err := o.vault.resolve(); err != nil {
				return err
			}
			context.AfterFunc(cmd.Context(), func() { fmt.Fprintln(c.stderr, "stopping; a second signal stops at once") })
			return serve(cmd.Context(), o, func(s serverInfo) { c.sayReady(o.dir, s) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", defaultListen, "address to listen on (SKEP_LISTEN)")
	flags.StringVar(&o.store, "store", "", "where data is kept: badger, pebble, or memory, which forgets everything at the end; badger in a new directory unless given")
	flags.StringVar(&o.cells, "cells", "map", "how cells are made from images: map, or copy where the system cannot map them")
	flags.StringVar(&o.apart, "isolation", or(os.Getenv("SKEP_ISOLATION"), inline), "where cells run: process, in a confined process for each app, or inline, in the server's (SKEP_ISOLATION)")
	flags.StringVar(&o.python, "python", os.Getenv("SKEP_PYTHON"), "`FILE` of the Python interpreter, for agents in Python (SKEP_PYTHON)")
	o.vault.register(flags)
	o.egress.register(flags)
	o.sandbox.register(flags)
	flags.StringVar(&format, "log-format", "text", "text or json")
	var origins []string
	if env := os.Getenv("SKEP_ORIGINS"); env != "" {
		origins = strings.Split(env, ",")
	}
	flags.StringSliceVar(&o.origins, "origin", origins, "web `ORIGIN`, such as https://example.com, whose pages may call and connect (SKEP_ORIGINS)")
	flags.StringVar(&o.public, "public-url", os.Getenv("SKEP_PUBLIC_URL"), "`URL` by which people and MCP clients reach the server, for links to approvals and sandboxes; as whoever asks does unless given (SKEP_PUBLIC_URL)")
	flags.StringSliceVar(&o.hosts, "host", nil, "further `NAME` to answer to when listening on a loopback address")
	return cmd
}

// sayReady prints a line from which a program can read that requests are taken, and where; at the first start, one more about
// the key that was made.
func (c *cli) sayReady(dir string, s serverInfo) {
	token := filepath.Join(dir, tokenFile)
	if !c.json {
		c.printf("Skep listens on %s; the owner's token is in %s\n", s.URL, token)
		if s.NewKey != "" {
			c.printf("the key to its secrets is new, and in %s; keep a copy of it, apart from the data\n", strings.TrimPrefix(s.NewKey, "file:"))
		}
		return
	}
	b, err := json.Marshal(map[string]any{"url": s.URL, "pid": s.PID, "data": dir, "token_file": token})
	if err == nil {
		fmt.Fprintf(c.stdout, "%s\n", b)
	}
}

func (c *cli) logger(format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(c.stderr, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(c.stderr, nil)), nil
	}
	return nil, usageError("--log-format %s: use text or json", format)
}

// serve runs a server until ctx ends. It calls ready once, when requests are taken.
func serve(ctx context.Context, o serveOptions, ready func(serverInfo)) (err error) {
	if o.cells != "map" && o.cells != "copy" {
		return usageError("--cells %s: use map or copy", o.cells)
	}
	if o.apart = or(o.apart, inline); o.apart != inline && o.apart != apart {
		return usageError("--isolation %s: use process or inline", o.apart)
	}
	if err := checkPython(o.python); err != nil {
		return err
	}
	if err := checkPublic(o.public); err != nil {
		return err
	}
	tracing, err := telemetry.Open(ctx, version, o.log)
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: err.Error(), Hint: "set the OTEL_ variables right, or none of them"}
	}
	defer func() { err = errors.Join(err, tracing.Close()) }()
	ln, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	defer ln.Close() // the API closes it, too
	st, closeStore, err := openStore(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	usage, err := ledger.Open(ctx, st, o.dir, &ledger.Options{Log: o.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, usage.Close()) }()
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx)) // calls go on for a while after ctx has ended
	var kept sync.WaitGroup
	kept.Go(func() { usage.Run(keeping) })
	defer func() { stop(); kept.Wait() }()
	quotas, err := quota.Load(ctx, usage)
	if err != nil {
		return err
	}

	var rt *runtime.Runtime
	secrets, err := openVault(ctx, st, o, func(ctx context.Context, app agent.App, e agent.Event) error {
		if rt == nil { // nobody follows the log yet
			_, err := st.Append(ctx, store.AuditLog(app), []agent.Event{e})
			return err
		}
		return rt.Audit(ctx, app, e)
	})
	if err != nil {
		return err
	}
	defer secrets.Close()
	seed, err := imageSeed(ctx, st, o.dir)
	if err != nil {
		return err
	}
	cells, closeCells, err := openCells(ctx, o, seed, func(ctx context.Context, d agent.Digest) (agent.Source, error) { return rt.LoadSource(ctx, d) },
		func(l host.Loaded) { rt.Loaded(l) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeCells()) }()
	log.SetOutput(io.Discard) // net/http tells it what hosts send unasked, which may hold a secret; nothing of ours uses it
	out, err := o.egress.open(o.log)
	if err != nil {
		return err
	}
	defer out.Close()
	toolset, err := openTools(st, o, out, secrets, func(ctx context.Context, app agent.App, e agent.Event) error { return rt.Audit(ctx, app, e) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, toolset.Close()) }()
	models, err := openModels(st, o, secrets, usage, tracing, func(ctx context.Context, app agent.App, e agent.Event) error { return rt.Audit(ctx, app, e) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, models.Close()) }()
	sandboxes, err := openSandboxes(st, o, models.Gateway)
	if err != nil {
		return err
	}
	linkKey, err := keptSecret(o.dir, "link.key")
	if err != nil {
		return err
	}
	opts := &runtime.Options{
		Log: o.log, Ledger: usage, Quotas: quotas, Tracer: tracing, Egress: out, Secrets: secrets, Tools: toolset.Catalogue, Models: models.Gateway,
		Previews: &preview.Links{Key: linkKey, URL: or(o.public, ownURL(ln.Addr()))},
	}
	if sandboxes != nil {
		defer func() { err = errors.Join(err, sandboxes.Close()) }()
		opts.Boxes = sandboxes
	}
	rt = runtime.New(st, cells, opts)
	toolset.rt = rt

	mcpKey, err := keptSecret(o.dir, "mcp.key")
	if err != nil {
		return err
	}
	if _, err := api.EnsureOwnerToken(ctx, st, filepath.Join(o.dir, tokenFile)); err != nil {
		return err
	}
	info := serverInfo{URL: "http://" + reachable(ln.Addr()), PID: os.Getpid()}
	if err := writeServerInfo(o.dir, info); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(o.dir, serverFile))

	serving := &api.Options{
		Log: o.log, Tracer: tracing, Version: version, Hosts: o.hosts, Origins: o.origins, URL: o.public, Vault: secrets,
		Tools: toolset.Catalogue, Models: models.Gateway, OAuth: toolset.oauth, LinkKey: linkKey, MCPKey: mcpKey,
	}
	if sandboxes != nil {
		sandboxes.rt = rt
		sandboxes.start(ctx)
		serving.Sandboxes = sandboxes.keeper
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return rt.Run(ctx) })
	work.Go(func() error { return api.New(rt, st, serving).Run(ctx, ln) })
	info.NewKey = secrets.NewKey()
	ready(info)
	work.Go(func() error { giveBack(ctx, o.log); return nil })
	return work.Wait()
}

// giveBack returns to the system what was needed only to start, once that is over: more than half of the heap, and most of the program's own pages.
func giveBack(ctx context.Context, log *slog.Logger) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return
	}
	debug.FreeOSMemory()
	if err := dropProgram(); err != nil {
		log.Debug("pages of the program stay in memory", "error", err)
	}
}

// The ways to run cells.
const (
	inline = "inline"
	apart  = "process"
)

// openCells returns what runs code.
func openCells(ctx context.Context, o serveOptions, seed []byte, load func(context.Context, agent.Digest) (agent.Source, error), loaded func(host.Loaded)) (runtime.Cells, func() error, error) {
	opts := host.Options{
		Seed: seed, CacheDir: or(o.cache, filepath.Join(o.dir, "cache")), Copy: o.cells == "copy", Python: o.python, Load: load, Loaded: loaded,
	}
	if o.apart == apart {
		pool, err := worker.New(&worker.Options{Host: opts, Args: []string{workerVerb}, Log: o.log})
		if err != nil {
			return nil, nil, err
		}
		return pool, pool.Close, nil
	}
	h, err := host.New(ctx, &opts)
	if err != nil {
		return nil, nil, err
	}
	return h, func() error { return h.Close(context.WithoutCancel(ctx)) }, nil
}

// imageSeed returns the store's, which backups hold. Before, it was a file of the data directory: where there is one, the store takes it over.
func imageSeed(ctx context.Context, st *store.Store, dir string) ([]byte, error) {
	file := filepath.Join(dir, "image.seed")
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, agent.Wrap(agent.Internal, err, "the file "+file+" cannot be read")
	}
	seed, err := st.ImageSeed(ctx, old)
	if err == nil && old != nil {
		err = os.Remove(file)
	}
	return seed, err
}

// keptSecret reads a random secret of the data directory, and makes it on the first start:
//
//   - link.key, with which links to approvals are made. Where it is lost, links that are out are worth nothing.
//   - sandbox.key, of which the keys and authorities of sandboxes are made, and the name under which they are this server's. Where it is lost, sandboxes that
//     are there are nobody's.
//   - mcp.key, which seals what MCP clients carry between the rounds of a call. Where it is lost, those calls have to be made again.
func keptSecret(dir, name string) ([]byte, error) {
	file := filepath.Join(dir, name)
	secret, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, 32)
		rand.Read(secret)
		err = writePrivate(file, secret)
	}
	if err == nil && len(secret) < 32 {
		err = errors.New("it is too short")
	}
	if err != nil {
		return nil, agent.Wrap(agent.Internal, err, "the file "+file+" cannot be used")
	}
	return secret, nil
}

// writePrivate puts a file that only its owner reads in place, whole or not at all: a server that was killed meanwhile starts again.
func writePrivate(file string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // CreateTemp uses mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// checkPython refuses a file that is not the interpreter, at the start and not at the first agent.
func checkPython(file string) error {
	if file == "" {
		return nil
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "the Python interpreter cannot be read", Err: err, Hint: python.Hint}
	}
	return python.CheckFile(wasm)
}

// checkPublic refuses what no link can begin with.
func checkPublic(text string) error {
	u, err := url.Parse(text)
	if text == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil {
		return nil
	}
	return usageError("--public-url %s: write https://HOST, with a path if there is one", text)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &agent.Error{
			Kind: agent.Unavailable, Msg: "address " + addr + " is in use",
			Hint: "a Skep may run there already; --listen 127.0.0.1:0 picks a free port",
		}
	case err != nil:
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "cannot listen on " + addr, Err: err, Hint: "write HOST:PORT, such as " + defaultListen}
	}
	return ln, nil
}

// reachable is an address by which this machine reaches a: one that listens on every address is reached on loopback.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// ownURL is how others reach a listener by its address, and "" when that is any of the machine.
func ownURL(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return ""
	}
	return "http://" + a.String()
}

func openStore(ctx context.Context, o serveOptions) (*store.Store, func() error, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, nil, &agent.Error{Kind: agent.Invalid, Msg: "cannot make the data directory", Err: err, Hint: "name another with --data"}
	}
	var kind engine.Kind
	if err := kind.UnmarshalText([]byte(o.store)); err != nil {
		return nil, nil, usageError("--store %s: use badger, pebble or memory", o.store)
	}
	db, err := engine.Open(o.dir, kind, &engine.Options{Log: o.log})
	if err != nil {
		return nil, nil, err
	}
	st, err := store.Open(ctx, db, o.dir, &store.Options{Log: o.log})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return st, func() error { return errors.Join(st.Close(), db.Close()) }, nil
}

// writeServerInfo tells clients on this machine where the server is.
func writeServerInfo(dir string, info serverInfo) error {
	b, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, serverFile), append(b, '\n'), 0o600)
}
