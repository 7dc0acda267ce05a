package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/worker"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
)

// settings are the flags.
type settings struct {
	length time.Duration
	quiet  time.Duration // a sixth of the length, and five minutes at most, unless given
	apart  bool
	kill   bool
	times  bool   // latencies count
	attack string // the only kind that is made; all when empty
	file   string
	dir    string
}

const workerVerb = "worker"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == workerVerb {
		if err := worker.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == stillVerb {
		fmt.Fprintln(os.Stderr, "soak:", tellStill(os.Stdout))
		os.Exit(1)
	}
	var s settings
	isolation := flag.String("isolation", "inline", "where cells run: process or inline")
	flag.StringVar(&s.attack, "attack", "", "the one kind of `ATTACK` to make, such as memory; all in turn unless given")
	flag.DurationVar(&s.length, "for", 2*time.Minute, "how long")
	flag.DurationVar(&s.quiet, "quiet", 0, "of that, without the hostile app; a sixth and five minutes at most unless given")
	flag.BoolVar(&s.kill, "kill-workers", false, "kill worker processes at random; with --isolation process")
	flag.BoolVar(&s.times, "times", true, "whether latencies count; not on a machine that does other work")
	flag.StringVar(&s.file, "json", "", "`FILE` to write the report to as JSON")
	flag.Parse()
	s.apart = *isolation == "process"
	if *isolation != "inline" && !s.apart || s.kill && !s.apart {
		fmt.Fprintln(os.Stderr, "soak: --isolation is process or inline, and --kill-workers needs process")
		os.Exit(2)
	}
	if s.attack != "" && !slices.ContainsFunc(kinds, func(k attackKind) bool { return k.name == s.attack }) {
		fmt.Fprintf(os.Stderr, "soak: there is no attack %q; there are:", s.attack)
		for _, k := range kinds {
			fmt.Fprintf(os.Stderr, " %q", k.name)
		}
		fmt.Fprintln(os.Stderr)
		os.Exit(2)
	}
	report, err := run(ctx, s, os.Stdout)
	if err == nil && s.file != "" {
		err = write(s.file, report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || len(report.Failures) > 0 {
		stop()
		os.Exit(1)
	}
}

func write(file string, r Report) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// run does all of it and prints the report.
func run(ctx context.Context, s settings, out io.Writer) (r Report, err error) {
	if s.quiet == 0 {
		s.quiet = min(5*time.Minute, s.length/6)
	}
	if s.dir, err = os.MkdirTemp("", "skep-soak-"); err != nil {
		return r, err
	}
	defer os.RemoveAll(s.dir)
	k, err := open(ctx, s)
	if err != nil {
		return r, err
	}
	r, err = k.soak(ctx, s)
	if err := errors.Join(err, k.close()); err != nil {
		return r, err
	}
	return r, r.print(out)
}

// skep is all of it but HTTP.
type skep struct {
	st    *store.Store
	rt    *runtime.Runtime
	pool  *worker.Pool // nil inline
	close func() error
}

func open(ctx context.Context, s settings) (_ *skep, err error) {
	log := slog.New(slog.DiscardHandler)
	var closers []func() error
	undo := func() (err error) {
		for i := len(closers) - 1; i >= 0; i-- {
			err = errors.Join(err, closers[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	db, err := engine.Open(s.dir, engine.Badger, &engine.Options{Log: log})
	if err != nil {
		return nil, err
	}
	closers = append(closers, db.Close)
	k := &skep{}
	if k.st, err = store.Open(ctx, db, s.dir, &store.Options{Log: log}); err != nil {
		return nil, err
	}
	closers = append(closers, k.st.Close)
	opts := host.Options{
		CacheDir: filepath.Join(s.dir, "cache"), Images: 256 << 20,
		Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) { return k.rt.LoadSource(ctx, d) },
	}
	var cells runtime.Cells
	if s.apart {
		if k.pool, err = worker.New(&worker.Options{Host: opts, Args: []string{workerVerb}, Log: log}); err != nil {
			return nil, err
		}
		cells = k.pool
		closers = append(closers, k.pool.Close)
	} else {
		h, err := host.New(ctx, &opts)
		if err != nil {
			return nil, err
		}
		cells = h
		closers = append(closers, func() error { return h.Close(context.WithoutCancel(ctx)) })
	}
	k.rt = runtime.New(k.st, cells, &runtime.Options{Log: log})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- k.rt.Run(running) }()
	closers = append(closers, func() error { stop(); return <-ended })
	k.close = undo
	return k, nil
}
