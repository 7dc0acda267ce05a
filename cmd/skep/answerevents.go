package main

import (
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// saying gathers what models say, so that a log shows lines of text in place of pieces.
type saying struct {
	fold client.ChatFold
	at   chatPlace
	from agent.Event // that began the line
	text strings.Builder
}

func toldAnswer(k agent.EventKind) bool {
	return k == agent.EventMessageStarted || k == agent.EventMessageDelta || k == agent.EventMessageDone
}

// answerWords are the short words for parts of an answer.
var answerWords = map[client.ChatKind]string{
	client.ChatText: "says", client.ChatThought: "thinks", client.ChatRefusal: "refuses", client.ChatCall: "calls", client.ChatRestart: "again", client.ChatAnswer: "said",
}

// printAnswer prints what an event of an answer tells, each line of a text when it is whole.
func (p *eventPrinter) printAnswer(e agent.Event) error {
	s := &p.says
	for _, part := range s.fold.Add(e) {
		switch part.Kind {
		case client.ChatText, client.ChatThought, client.ChatRefusal, client.ChatCall:
			if at := (chatPlace{part.Kind, part.ID, part.Index}); at != s.at {
				if err := p.flush(); err != nil {
					return err
				}
				s.at = at
			}
			if s.text.Len() == 0 {
				s.from = e
				if part.Name != "" {
					s.text.WriteString(part.Name + " ")
				}
			}
			s.text.WriteString(part.Text)
			if text := s.text.String(); part.Kind != client.ChatCall && strings.Contains(part.Text, "\n") {
				end := strings.LastIndexByte(text, '\n')
				s.text.Reset()
				if err := p.writeAs(s.from, answerWords[part.Kind], text[:end]); err != nil {
					return err
				}
				s.from = e
				s.text.WriteString(text[end+1:])
			}
		case client.ChatRestart, client.ChatAnswer:
			if err := p.flush(); err != nil {
				return err
			}
			if err := p.writeAs(e, answerWords[part.Kind], answerText(part)); err != nil {
				return err
			}
		}
	}
	return nil
}

// answerText says how an answer ended, or that it begins again.
func answerText(p client.ChatPart) string {
	switch {
	case p.Kind == client.ChatRestart:
		return "the server was started again; what this answer said before is void"
	case p.Error != "":
		return "failed: " + p.Error
	}
	text := "stop: " + or(p.Stop, "unknown")
	if p.Model != "" {
		text = p.Model + ", " + text
	}
	if p.Usage != nil {
		text += fmt.Sprintf(", %d tokens in, %d out", p.Usage.Input, p.Usage.Output)
	}
	return text
}

// flush prints a line that was begun. It is called before other events, and at the end.
func (p *eventPrinter) flush() error {
	s := &p.says
	text, word := s.text.String(), answerWords[s.at.kind]
	s.text.Reset()
	s.at = chatPlace{}
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return p.writeAs(s.from, word, strings.TrimRight(text, " "))
}
