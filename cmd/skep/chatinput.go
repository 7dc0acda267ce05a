package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// chatInput reads what a person says. At a terminal lines can be edited, and earlier ones are found with the arrow keys.
type chatInput struct {
	tty   *os.File // nil when it is none
	edit  *term.Terminal
	state *term.State // of the terminal as it was found
	keys  *answerReader
	lines chan inputLine // of what is no terminal
	from  *bufio.Reader
}

type inputLine struct {
	text string
	err  error
}

func newChatInput(in io.Reader) *chatInput {
	i := &chatInput{keys: newAnswerReader(in)}
	if i.tty = i.keys.tty; i.tty != nil {
		if state, err := term.GetState(int(i.tty.Fd())); err == nil {
			i.state = state
			i.edit = term.NewTerminal(struct {
				io.Reader
				io.Writer
			}{i.tty, os.Stderr}, "")
			return i
		}
		i.tty, i.keys.tty = nil, nil
	}
	i.from = i.keys.lines
	return i
}

// restore makes the terminal what it was, when a read is left.
func (i *chatInput) restore() {
	if i.tty != nil {
		_ = term.Restore(int(i.tty.Fd()), i.state)
	}
}

// next returns a channel on which the next line comes.
func (i *chatInput) next(prompt string) <-chan inputLine {
	if i.tty == nil {
		if i.lines == nil {
			i.lines = make(chan inputLine)
			go i.scan()
		}
		return i.lines
	}
	out := make(chan inputLine, 1)
	go func() {
		if _, err := term.MakeRaw(int(i.tty.Fd())); err != nil {
			out <- inputLine{err: err}
			return
		}
		if width, height, err := term.GetSize(int(i.tty.Fd())); err == nil && width > 0 {
			_ = i.edit.SetSize(width, height)
		}
		i.edit.SetPrompt(prompt)
		text, err := i.edit.ReadLine()
		i.restore()
		if err == term.ErrPasteIndicator {
			err = nil
		}
		out <- inputLine{strings.TrimSpace(text), err}
	}()
	return out
}

// scan reads the lines of what is no terminal, one when it is wanted.
func (i *chatInput) scan() {
	for {
		text, err := i.from.ReadString('\n')
		if text = strings.TrimSpace(text); text != "" {
			i.lines <- inputLine{text, nil}
		}
		if err != nil {
			for { // whoever asks again learns the same
				i.lines <- inputLine{"", err}
			}
		}
	}
}

// line returns the next line.
func (i *chatInput) line(ctx context.Context) (string, error) {
	select {
	case l := <-i.next(""):
		return l.text, l.err
	case <-ctx.Done():
		i.restore()
		return "", ctx.Err()
	}
}

// key returns one key of a terminal, else a line, in lower case.
func (i *chatInput) key(ctx context.Context) (string, error) {
	if i.tty == nil {
		line, err := i.line(ctx)
		return strings.ToLower(line), err
	}
	out := make(chan inputLine, 1)
	go func() {
		key, err := i.keys.key()
		out <- inputLine{key, err}
	}()
	select {
	case l := <-out:
		return l.text, l.err
	case <-ctx.Done():
		i.restore()
		return "", ctx.Err()
	}
}
