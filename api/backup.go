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
	return s.piped(ctx, "backup", typeBackup, func(ctx context.Context, w io.Writer) error {
		_, err := backup.Write(ctx, s.st, w, backup.Manifest{Skep: s.o.Version, Created: s.o.Now()})
		return err
	}), nil
}
