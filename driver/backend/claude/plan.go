package claude

import (
	"encoding/json"

	"github.com/skep-dev/skep/driver"
)

// plan is what the model means to do, as it tells with the tools TaskCreate and TaskUpdate: one step with each call, whose id is in the result.
type plan struct {
	steps   []step
	waiting map[string]change // calls that have no result, by their id
}

type step struct{ id, text, status string }

// change is what a call has in it.
type change struct {
	Subject string `json:"subject"`
	Task    string `json:"taskId"`
	Status  string `json:"status"`
}

var statuses = map[string]string{"pending": "pending", "in_progress": "running", "completed": "done"}

// called keeps what a call wants to change.
func (p *plan) called(b block) {
	var c change
	if b.Name != "TaskCreate" && b.Name != "TaskUpdate" || json.Unmarshal(b.Input, &c) != nil {
		return
	}
	if p.waiting == nil {
		p.waiting = map[string]change{}
	}
	p.waiting[b.ID] = c
}

// result is that of a call: failed, or what it says. It reports whether the plan has changed.
func (p *plan) result(name, call string, failed bool, result json.RawMessage) bool {
	c, ok := p.waiting[call]
	delete(p.waiting, call)
	if !ok || failed {
		return false
	}
	if name == "TaskUpdate" {
		return p.update(c)
	}
	var r struct {
		Task struct {
			ID string `json:"id"`
		} `json:"task"`
	}
	if json.Unmarshal(result, &r) != nil || r.Task.ID == "" {
		return false
	}
	p.steps = append(p.steps, step{r.Task.ID, c.Subject, "pending"})
	return true
}

func (p *plan) update(c change) bool {
	for i := range p.steps {
		s := &p.steps[i]
		if s.id != c.Task {
			continue
		}
		if c.Subject != "" {
			s.text = c.Subject
		}
		if c.Status == "deleted" {
			p.steps = append(p.steps[:i], p.steps[i+1:]...)
		} else if to := statuses[c.Status]; to != "" {
			s.status = to
		}
		return true
	}
	return false
}

func (p *plan) data() driver.PlanData {
	d := driver.PlanData{Steps: []driver.PlanStep{}}
	for _, s := range p.steps {
		d.Steps = append(d.Steps, driver.PlanStep{Text: s.text, Status: s.status})
	}
	return d
}
