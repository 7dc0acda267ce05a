package skep

import "fmt"

// Debug, Info, Warn and Error write a line of console output: it shows in the agent's log and in the session's events.
func Debug(format string, args ...any) { logLine(levelDebug, fmt.Sprintf(format, args...)) }
func Info(format string, args ...any)  { logLine(levelInfo, fmt.Sprintf(format, args...)) }
func Warn(format string, args ...any)  { logLine(levelWarn, fmt.Sprintf(format, args...)) }
func Error(format string, args ...any) { logLine(levelError, fmt.Sprintf(format, args...)) }

type level uint8

const (
	levelDebug level = iota
	levelInfo
	levelWarn
	levelError
)
