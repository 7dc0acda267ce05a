package sqldb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/skep-dev/skep/agent"
)

func hinted(err error, hint string) error {
	e := agent.AsError(err)
	e.Hint = hint
	return e
}

func clip(s string) string { return fmt.Sprintf("%.80s", s) }

// stopped is the error of a call whose context has ended.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return hinted(agent.Exceeded(agent.LimitWall, "the SQL statement was stopped: the call's time is over"), "an index may make it faster; or do it in smaller parts")
	}
	return agent.Errorf(agent.Cancelled, "the SQL statement was stopped: the call was cancelled")
}

// explain turns an error of the library into one to show.
func (db *DB) explain(ctx context.Context, err error) error {
	var ours *agent.Error
	var e *sqlite3.Error
	var code sqlite3.ErrorCode
	switch {
	case errors.As(err, &ours):
		return err
	case db.file.err != nil:
		return db.file.err
	case ctx.Err() != nil && errors.Is(err, sqlite3.INTERRUPT):
		return stopped(ctx)
	case db.c != nil && db.c.refused != "":
		return agent.Errorf(agent.Denied, "SQL: %s", db.c.refused)
	case !errors.As(err, &code):
		return err
	}
	msg, near := strings.TrimPrefix(err.Error(), "sqlite3: "), ""
	if errors.As(err, &e) && e.SQL() != "" {
		near = ", near " + fmt.Sprintf("%.40q", e.SQL())
	}
	switch code {
	case sqlite3.CONSTRAINT:
		return agent.Errorf(agent.Conflict, "SQL: %s", msg)
	case sqlite3.FULL:
		return hinted(agent.Exceeded(agent.LimitState, "the SQL database would grow past %d bytes, or change more than that of it in one turn", min(db.o.Bytes, db.o.Memory)),
			"delete rows that are no longer needed, or have the agent's state grant widened")
	case sqlite3.TOOBIG:
		return agent.Exceeded(agent.LimitOutput, "SQL: a text, a blob or the statement is larger than %d bytes", MaxValue)
	case sqlite3.INTERRUPT:
		return agent.Errorf(agent.Cancelled, "the SQL statement was stopped")
	case sqlite3.CORRUPT, sqlite3.NOTADB, sqlite3.IOERR, sqlite3.CANTOPEN, sqlite3.MISUSE, sqlite3.INTERNAL, sqlite3.PROTOCOL, sqlite3.NOLFS:
		return damaged(err)
	}
	return agent.Errorf(agent.Invalid, "SQL: %s%s", msg, near)
}

// faulted is the error of a call in which the library panicked.
func faulted(p any, open bool) error {
	lost := ""
	if open {
		lost = "; the open transaction was rolled back"
	}
	if err, ok := p.(error); ok && err.Error() == "sqlite3: out of memory" {
		return hinted(agent.Exceeded(agent.LimitMemory, "the SQL statement needs more memory than a database may use%s", lost), "do it in smaller parts, or sort by an index")
	}
	// A statement that is nested too deep for the library's stack is the one known way to get here.
	return &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitStack, Err: fmt.Errorf("sqlite panicked: %v", p),
		Msg: "the SQL statement failed inside the database, most likely because views or subqueries are nested too deep" + lost}
}
