package keeper

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/sandbox"
)

// live is a box whose socket is served: of one sandbox and one generation.
type live struct {
	k          *Keeper
	id         agent.SandboxID
	generation int64
	env        agent.Environment
	ca         string
	link       *link.Link
	socket     *socket
	server     *http.Server
	served     sync.WaitGroup

	rec  atomic.Pointer[agent.SandboxRecord] // as it was stored last
	door atomic.Pointer[http.Handler]
	used atomic.Int64 // Unix milliseconds
	busy atomic.Int32 // who waits for the driver

	mu      sync.Mutex
	cuts    map[int]context.CancelFunc // each ends a connection of the driver
	nextCut int
	looked  time.Time     // when a lost connection has last made Run look at the box
	welcome chan struct{} // closed when the driver is ready the next time
}

// token is what the driver of a box may say hello with, once: as link.DeriveKey is made, and another. So a server that starts again knows a driver that it
// has started and that had not said hello.
func (k *Keeper) token(id agent.SandboxID, generation int64) string {
	h := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(h, "skep boot token\x00%s\x00%d", id, generation)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// folder is mounted into a box.
func (k *Keeper) folder(id agent.SandboxID, generation int64) string {
	return filepath.Join(k.o.Dir, fmt.Sprintf("%s.%d", id, generation))
}

// makeFolder makes the folder of a box. Its parent is closed to all others, so in it, where the user of a box may be any, all is open.
func (k *Keeper) makeFolder(id agent.SandboxID, generation int64) (string, error) {
	dir := k.folder(id, generation)
	err := os.Mkdir(dir, 0o755)
	if err == nil || os.IsExist(err) {
		err = os.Chmod(dir, 0o755) // whatever the umask is
	}
	if err != nil {
		return "", agent.Wrap(agent.Unavailable, err, "the folder of a sandbox's socket cannot be made")
	}
	return dir, nil
}

// live returns the box of a sandbox whose socket is served, of whatever generation; nil when there is none.
func (k *Keeper) live(id agent.SandboxID) *live {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lives[id]
}

// attach serves the socket of a sandbox's box, if that is not so already. The caller has the sandbox's place in k.boxes.
func (k *Keeper) attach(ctx context.Context, rec *agent.SandboxRecord) (*live, error) {
	k.mu.Lock()
	lv, over := k.lives[rec.ID], k.over
	k.mu.Unlock()
	if over {
		return nil, alreadyOver()
	}
	if lv != nil && lv.generation == rec.Generation {
		return lv, nil
	}
	k.detach(rec.ID, lostError(&rec.Sandbox, "another generation of it was made"))
	lv, err := k.newLive(ctx, rec)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	if over = k.over; !over {
		k.lives[rec.ID] = lv
	}
	k.mu.Unlock()
	if over {
		lv.close()
		lv.link.Close(alreadyOver())
		return nil, alreadyOver()
	}
	return lv, nil
}

func (k *Keeper) newLive(ctx context.Context, rec *agent.SandboxRecord) (*live, error) {
	env, err := k.o.Records.Environment(ctx, rec.App, rec.Environment)
	if err != nil {
		return nil, err
	}
	acked, err := k.o.Records.Taken(ctx, rec.App, rec.Source())
	if err != nil {
		return nil, err
	}
	dir, err := k.makeFolder(rec.ID, rec.Generation)
	if err != nil {
		return nil, err
	}
	lv := &live{k: k, id: rec.ID, generation: rec.Generation, env: env, cuts: map[int]context.CancelFunc{}, welcome: make(chan struct{})}
	own := *rec // the caller's changes while this one is read
	lv.rec.Store(&own)
	lv.used.Store(rec.Used.UnixMilli())
	if err := lv.openDoor(&rec.Sandbox); err != nil {
		return nil, err
	}
	if lv.socket, err = listen(filepath.Join(dir, sandbox.Socket)); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "the socket of a sandbox cannot be served")
	}
	o := link.Options{
		Sandbox: rec.ID, Generation: rec.Generation, Key: link.DeriveKey(k.secret, rec.ID, rec.Generation), Acked: acked,
		Welcome: lv.greet, Events: lv.events, State: lv.state, Log: k.log,
	}
	if rec.Started.IsZero() {
		o.Token = k.token(rec.ID, rec.Generation)
	}
	lv.link = link.New(o)
	lv.server = &http.Server{
		Handler: lv, ReadHeaderTimeout: time.Minute, IdleTimeout: idleConn, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(k.log.Handler(), slog.LevelDebug),
	}
	lv.served.Go(func() { _ = lv.server.Serve(lv.socket) })
	return lv, nil
}

// detach ends all that goes by the socket of a box, and says why to who waits for it. The driver is told to end.
func (k *Keeper) detach(id agent.SandboxID, why error) {
	k.mu.Lock()
	lv := k.lives[id]
	delete(k.lives, id)
	k.mu.Unlock()
	if lv != nil {
		lv.link.Close(why)
		lv.close()
		lv.link.Wait()
	}
}

// close stops serving the socket. The driver tries to connect again.
func (lv *live) close() {
	_ = lv.server.Close()
	lv.socket.cut()
	lv.served.Wait()
}

// ServeHTTP serves what comes by the socket: the driver's connections, and the models and the way out for all else.
func (lv *live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect && r.URL.Host == "" {
		switch {
		case r.URL.Path == driver.Path:
			lv.serveDriver(w, r)
			return
		case strings.HasPrefix(r.URL.Path, driver.StreamPath):
			lv.link.ServeHTTP(w, r)
			return
		}
	}
	(*lv.door.Load()).ServeHTTP(w, r)
}

// serveDriver serves a connection of the driver, which can be cut. When one ends the box may have, which Run finds out sooner than the link does.
func (lv *live) serveDriver(w http.ResponseWriter, r *http.Request) {
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	lv.mu.Lock()
	lv.nextCut++
	n := lv.nextCut
	lv.cuts[n] = cut
	lv.mu.Unlock()
	lv.link.ServeHTTP(w, r.WithContext(ctx))
	lv.mu.Lock()
	delete(lv.cuts, n)
	look := lv.link.Up() && time.Since(lv.looked) > time.Second // any process in the box can connect, and often
	if look {
		lv.looked = time.Now()
	}
	lv.mu.Unlock()
	if look {
		lv.k.poke(lv.id)
	}
}

// openDoor asks for what is to answer at the socket on behalf of who uses the sandbox now.
func (lv *live) openDoor(sb *agent.Sandbox) error {
	h := http.NotFoundHandler()
	if lv.k.o.Door != nil {
		own, ca, err := lv.k.o.Door(*sb, lv.env)
		if err != nil {
			return err
		}
		h, lv.ca = own, ca
	}
	lv.door.Store(&h)
	return nil
}

// renew has the driver connect anew, and returns when it was told what it is told now, or has gone.
func (lv *live) renew(ctx context.Context) error {
	lv.mu.Lock()
	welcome := lv.welcome
	for _, cut := range lv.cuts {
		cut()
	}
	lv.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for lv.link.Err() == nil {
		select {
		case <-welcome:
			return nil
		case <-look.C:
		case <-ctx.Done():
			return waited(ctx, fmt.Sprintf("the driver of sandbox %s to come back", lv.id))
		}
	}
	return nil // who uses it next finds out
}

// greet says what the driver is told.
func (lv *live) greet(ctx context.Context) (driver.WelcomeBody, error) {
	var body driver.WelcomeBody
	if lv.k.o.Welcome != nil {
		var err error
		if body, err = lv.k.o.Welcome(ctx, lv.rec.Load().Sandbox, lv.env); err != nil {
			return body, err
		}
	}
	vars := maps.Clone(lv.env.Variables)
	if vars == nil {
		vars = map[string]string{}
	}
	maps.Copy(vars, body.Env)
	body.Env = vars
	return body, nil
}

func (lv *live) events(ctx context.Context, first int64, list []driver.Event) error {
	lv.touch()
	return lv.k.o.Events(ctx, lv.rec.Load().Sandbox, first, list)
}

// state is told by the link.
func (lv *live) state(up bool, _ error) {
	if !up {
		lv.k.poke(lv.id)
		return
	}
	lv.mu.Lock()
	close(lv.welcome)
	lv.welcome = make(chan struct{})
	lv.mu.Unlock()
}

// connected reports whether a connection of the driver is there now, or of another program in the box that has not been told to leave.
func (lv *live) connected() bool {
	lv.mu.Lock()
	defer lv.mu.Unlock()
	return lv.link.Up() && len(lv.cuts) > 0
}

func (lv *live) touch() { lv.used.Store(lv.k.now().UnixMilli()) }

// lastUse returns when the sandbox was last used.
func (lv *live) lastUse() time.Time {
	if lv.busy.Load() > 0 {
		return lv.k.now()
	}
	return time.UnixMilli(lv.used.Load()).UTC()
}

// boot is what a box is given at its start.
func (lv *live) boot(rec *agent.SandboxRecord) (io.Reader, error) {
	b, err := json.Marshal(&driver.Boot{
		Version: driver.Version, Sandbox: rec.ID, Generation: rec.Generation, Socket: sandbox.SocketDir + "/" + sandbox.Socket,
		Token: lv.k.token(rec.ID, rec.Generation), TraceID: rec.Trace, CA: lv.ca,
	})
	return strings.NewReader(string(b) + "\n"), err
}
