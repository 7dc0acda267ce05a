package badgerkv

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// logger passes on Badger's warnings and errors.
type logger struct{ log *slog.Logger }

func (l logger) Errorf(format string, args ...any)   { l.write(slog.LevelError, format, args) }
func (l logger) Warningf(format string, args ...any) { l.write(slog.LevelWarn, format, args) }
func (l logger) Infof(string, ...any)                {}
func (l logger) Debugf(string, ...any)               {}

func (l logger) write(level slog.Level, format string, args []any) {
	if l.log != nil {
		l.log.Log(context.Background(), level, "badger: "+strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
