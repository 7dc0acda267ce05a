package sqldb

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/ncruces/go-sqlite3"
)

// Functions that take the place of SQLite's own: those of time and chance, which are the caller's, and those that compare a text of a
// megabyte with another at each of its places, for minutes in which nobody can stop them.

const pure = sqlite3.DETERMINISTIC | sqlite3.INNOCUOUS

func (c *conn) register() error {
	var errs []error
	add := func(name string, args int, flags sqlite3.FunctionFlag, f sqlite3.ScalarFunction) {
		errs = append(errs, c.CreateFunction(name, args, flags, c.guarded(f)))
	}
	add("random", 0, sqlite3.INNOCUOUS, c.random)
	add("randomblob", 1, sqlite3.INNOCUOUS, c.randomblob)
	add("changes", 0, sqlite3.INNOCUOUS, c.changesFunc)
	add("total_changes", 0, sqlite3.INNOCUOUS, c.totalChangesFunc)
	for name, layout := range map[string]string{"current_timestamp": "2006-01-02 15:04:05", "current_date": "2006-01-02", "current_time": "15:04:05"} {
		add(name, 0, pure, func(ctx sqlite3.Context, _ ...sqlite3.Value) { ctx.ResultText(c.db.now.UTC().Format(layout)) })
	}
	for name, at := range dateFunctions {
		// Deterministic as far as one statement goes, which has one time. SQLite's own refuse 'now' in an index; these do not.
		add(name, -1, pure, func(ctx sqlite3.Context, args ...sqlite3.Value) { c.date(ctx, name, at, args) })
	}
	add("instr", 2, pure, instr)
	add("replace", 3, pure, replace)
	add("unhex", 1, pure, unhex)
	add("unhex", 2, pure, unhex)
	for name, sides := range map[string]int{"ltrim": left, "rtrim": right, "trim": left | right} {
		f := func(ctx sqlite3.Context, args ...sqlite3.Value) { trim(ctx, sides, args) }
		add(name, 1, pure, f)
		add(name, 2, pure, f)
	}
	return errors.Join(errs...)
}

// guarded keeps a panic, which is for lack of memory, from tearing through the library's frames, and ends when the call does.
func (c *conn) guarded(f sqlite3.ScalarFunction) sqlite3.ScalarFunction {
	return func(ctx sqlite3.Context, args ...sqlite3.Value) {
		if c.GetInterrupt().Err() != nil {
			ctx.ResultError(sqlite3.INTERRUPT)
			return
		}
		defer func() {
			if recover() != nil {
				ctx.ResultError(sqlite3.NOMEM)
			}
		}()
		f(ctx, args...)
	}
}

func (c *conn) random(ctx sqlite3.Context, _ ...sqlite3.Value) {
	var b [8]byte
	if _, err := io.ReadFull(c.db.o.Random, b[:]); err != nil {
		ctx.ResultError(fmt.Errorf("random: %w", err))
		return
	}
	ctx.ResultInt64(int64(binary.LittleEndian.Uint64(b[:])))
}

func (c *conn) randomblob(ctx sqlite3.Context, args ...sqlite3.Value) {
	n := max(args[0].Int64(), 1)
	if n > MaxValue {
		ctx.ResultError(sqlite3.TOOBIG)
		return
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.db.o.Random, b); err != nil {
		ctx.ResultError(fmt.Errorf("randomblob: %w", err))
		return
	}
	ctx.ResultBlob(b)
}

func (c *conn) changesFunc(ctx sqlite3.Context, _ ...sqlite3.Value) {
	n := int64(0)
	if c.TotalChanges() != c.changes0 {
		n = c.Changes()
	}
	ctx.ResultInt64(n)
}

func (c *conn) totalChangesFunc(ctx sqlite3.Context, _ ...sqlite3.Value) {
	ctx.ResultInt64(c.TotalChanges() - c.changes0)
}

func anyNull(args []sqlite3.Value) bool {
	for _, a := range args {
		if a.Type() == sqlite3.NULL {
			return true
		}
	}
	return false
}

// instr counts in bytes when both are blobs, else in characters, from 1.
func instr(ctx sqlite3.Context, args ...sqlite3.Value) {
	if anyNull(args) {
		return
	}
	if args[0].Type() == sqlite3.BLOB && args[1].Type() == sqlite3.BLOB {
		ctx.ResultInt64(int64(bytes.Index(args[0].RawBlob(), args[1].RawBlob()) + 1))
		return
	}
	// A conversion of one may move the other, so the first is copied.
	text := []byte(args[0].Text())
	i := bytes.Index(text, args[1].RawText())
	if i < 0 {
		ctx.ResultInt64(0)
		return
	}
	n := int64(1)
	for _, b := range text[:i] {
		if b&0xC0 != 0x80 {
			n++
		}
	}
	ctx.ResultInt64(n)
}

func replace(ctx sqlite3.Context, args ...sqlite3.Value) {
	if anyNull(args) {
		return
	}
	text, from, to := []byte(args[0].Text()), []byte(args[1].Text()), []byte(args[2].Text())
	if len(from) == 0 {
		ctx.ResultRawText(text)
		return
	}
	if n := int64(bytes.Count(text, from)); int64(len(text))+n*int64(len(to)-len(from)) > MaxValue {
		ctx.ResultError(sqlite3.TOOBIG)
		return
	}
	ctx.ResultText(string(bytes.ReplaceAll(text, from, to)))
}

// unhex returns NULL for what is not hexadecimal, but for the characters of its second argument between pairs of digits.
func unhex(ctx sqlite3.Context, args ...sqlite3.Value) {
	if anyNull(args) {
		return
	}
	text, ignore := args[0].Text(), map[string]bool{}
	if len(args) == 2 {
		for rest := args[1].Text(); rest != ""; {
			n := charLen(rest)
			ignore[rest[:n]] = true
			rest = rest[n:]
		}
	}
	digits := make([]byte, 0, len(text))
	for rest := text; rest != ""; {
		switch n := charLen(rest); {
		case isHex(rest[0]):
			if len(rest) < 2 || !isHex(rest[1]) {
				return
			}
			digits = append(digits, rest[:2]...)
			rest = rest[2:]
		case ignore[rest[:n]]:
			rest = rest[n:]
		default:
			return
		}
	}
	out := make([]byte, len(digits)/2)
	if _, err := hex.Decode(out, digits); err == nil {
		ctx.ResultBlob(out)
	}
}

func isHex(b byte) bool { return '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'f' }

// charLen returns the length of the first character as SQLite sees characters: up to the next byte that begins one.
func charLen(s string) int {
	n := 1
	if s[0] >= 0xC0 {
		for n < len(s) && s[n]&0xC0 == 0x80 {
			n++
		}
	}
	return n
}

const (
	left = 1 << iota
	right
)

func trim(ctx sqlite3.Context, sides int, args []sqlite3.Value) {
	if anyNull(args) {
		return
	}
	text, chars := args[0].Text(), map[string]bool{" ": true}
	if len(args) == 2 {
		delete(chars, " ")
		for rest := args[1].Text(); rest != ""; {
			n := charLen(rest)
			chars[rest[:n]] = true
			rest = rest[n:]
		}
	}
	for sides&left != 0 && text != "" {
		n := charLen(text)
		if !chars[text[:n]] {
			break
		}
		text = text[n:]
	}
	for sides&right != 0 && text != "" {
		n := 1
		for n < len(text) && text[len(text)-n]&0xC0 == 0x80 {
			n++
		}
		if !chars[text[len(text)-n:]] {
			break
		}
		text = text[:len(text)-n]
	}
	ctx.ResultText(text)
}
