package api

import (
	"context"
	"io"

	"github.com/skep-dev/skep/store/backup"
)

const typeBackup = "application/zstd"

type backupRequest struct{}

// backup streams a backup of the whole store, as it is at one moment. One that is cut short does not pass backup.Check.
func (s *Server) backup(ctx context.Context, _ backupRequest) (*stream, error) {
	if l := s.rt.Ledger(); l != nil {
		if err := l.Fold(ctx); err != nil { // a backup has the rollups, not the ledger's files
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	id := requestOf(ctx).id
	s.sockets.Go(func() {
		_, err := backup.Write(ctx, s.st, w, backup.Manifest{Skep: s.o.Version, Created: s.o.Now()})
		if err != nil && ctx.Err() == nil {
			s.o.Log.Error("api: backup failed", "request", id, "err", err)
		}
		w.CloseWithError(err)
	})
	buf := make([]byte, 64<<10)
	return &stream{
		contentType: typeBackup, finish: true,
		next: func(context.Context) ([]byte, error) {
			n, err := io.ReadAtLeast(r, buf, 1)
			return buf[:n], err
		},
		close: func() { cancel(); r.Close() },
	}, nil
}
