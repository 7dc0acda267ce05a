package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/checkpoint"
)

// outlives are the folders of the workspace that a checkpoint has.
var outlives = []string{sandbox.Memory, sandbox.Sessions}

// save stores what a pet's checkpoint has: a tar, and its manifest, of which the record is to name both. It stays with what is there already.
func (k *Keeper) save(ctx context.Context, lv *live, rec *agent.SandboxRecord) (agent.SandboxCheckpoint, error) {
	lv.busy.Add(1)
	defer lv.busy.Add(-1)
	m := checkpoint.Manifest{Sandbox: rec.ID, Generation: rec.Generation, Environment: rec.Environment, Created: k.now().UTC()}
	err := k.archive(ctx, lv, func(r io.Reader) (err error) {
		m.Files, err = checkpoint.Keep(&atMost{r, rec.ID, k.o.Checkpoint, k.o.Checkpoint}, func(r io.Reader) (err error) {
			m.Digest, m.Bytes, err = k.o.Records.PutBlobFrom(ctx, r)
			return err
		})
		return err
	})
	if errors.Is(err, link.ErrLost) {
		err = k.lose(ctx, rec, err.Error())
	}
	if err != nil {
		return agent.SandboxCheckpoint{}, err
	}
	for _, f := range m.Files { // which come from the box
		if top, _, _ := strings.Cut(f.Path, "/"); !slices.Contains(outlives, top) {
			return agent.SandboxCheckpoint{}, agent.Errorf(agent.Failed, "sandbox %s was asked for its %s, and has sent %.200q", rec.ID, strings.Join(outlives, " and "), f.Path)
		}
	}
	b, err := json.Marshal(&m)
	if err != nil {
		return agent.SandboxCheckpoint{}, err
	}
	manifest, _, err := k.o.Records.PutBlobFrom(ctx, bytes.NewReader(b))
	return agent.SandboxCheckpoint{
		Digest: m.Digest, Manifest: manifest, Bytes: m.Bytes, Files: len(m.Files), Environment: m.Environment, Created: m.Created, Pending: true,
	}, err
}

// archive has use read a tar of those of the folders that there are.
func (k *Keeper) archive(ctx context.Context, lv *live, use func(io.Reader) error) error {
	var there []string
	for _, name := range outlives {
		err := lv.link.Do(ctx, driver.DoList, driver.FileArgs{Path: name}, nil)
		switch {
		case err == nil:
			there = append(there, name)
		case agent.KindOf(err) != agent.NotFound:
			return err
		}
	}
	if len(there) == 0 {
		return use(bytes.NewReader(make([]byte, 1024))) // the end of a tar
	}
	var refused error
	err := link.Receive(ctx, lv.link, driver.DoArchive, func(st *driver.Stream) any { return driver.ArchiveArgs{Paths: there, Stream: st} }, nil, func(r io.Reader) error {
		refused = use(r)
		return refused
	})
	if refused != nil && agent.KindOf(refused) != agent.Unavailable { // else the driver knows more
		return refused
	}
	return err
}

// atMost is a checkpoint that comes, and may have so many bytes more.
type atMost struct {
	io.Reader
	id         agent.SandboxID
	most, left int64
}

func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, &agent.Error{
			Kind: agent.Exhausted, Msg: fmt.Sprintf("the folders %s of sandbox %s have more than %d bytes together, so that nothing was changed", strings.Join(outlives, " and "), a.id, a.most),
			Hint: "delete what need not outlive it, or save that elsewhere: skep sandbox backup",
		}
	}
	return n, err
}

// putBack brings the checkpoint of a pet into its box, in which nobody has done anything. When that is cut short it is done again.
func (k *Keeper) putBack(ctx context.Context, lv *live, rec *agent.SandboxRecord) (agent.SandboxRecord, error) {
	lv.busy.Add(1)
	defer lv.busy.Add(-1)
	body, err := k.o.Records.OpenBlob(ctx, rec.Checkpoint.Digest)
	if err != nil {
		return *rec, err
	}
	defer body.Close()
	err = link.Send(ctx, lv.link, driver.DoUnpack, func(st *driver.Stream) any { return driver.ArchiveArgs{Stream: st} }, body, nil)
	switch {
	case err == nil:
		return k.step(ctx, rec, agent.SandboxStarting, func(rec *agent.SandboxRecord) { rec.Checkpoint.Pending = false })
	case ctx.Err() != nil:
		return *rec, waited(ctx, "the checkpoint of sandbox "+string(rec.ID)+" to be put back")
	case errors.Is(err, link.ErrLost):
		return *rec, k.lose(ctx, rec, err.Error())
	case errors.Is(err, ErrLost): // it was deleted meanwhile
		return *rec, err
	}
	return *rec, k.fail(ctx, rec, &agent.Error{
		Kind: agent.KindOf(err), Msg: fmt.Sprintf("the checkpoint of sandbox %s could not be put back: %s", rec.ID, agent.AsError(err).Msg), Err: err,
		Hint: "what was taken is kept; give the environment more room and use it again, or give it up: skep sandbox reset " + string(rec.ID),
	})
}
