package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// instanceRequest names an instance.
type instanceRequest struct {
	Name string `path:"name"`
	Key  string `path:"key" doc:"escaped: its slashes are %2F"`
}

type callInstanceRequest struct {
	instanceRequest
	Method  string        `path:"method" doc:"a method of the script's default export, or an export"`
	Type    string        `header:"Content-Type" doc:"of the input; a script gets JSON as a value, text as a string, else bytes"`
	Timeout time.Duration `header:"Skep-Timeout" doc:"most wall time, such as 1.5s, when less than the agent's limit"`
	Accept  string        `header:"Accept" doc:"application/x-ndjson or text/event-stream to read what the method yields as it comes"`
	Once    store.Once    `once:"-"`
	Body    []byte        `body:"raw"`
}

// callInstance runs to its end as a stateless call does: what it changed is durable before it is answered. Or else it is answered with
// what the method yields.
func (s *Server) callInstance(ctx context.Context, q callInstanceRequest) (any, error) {
	if q.Type == "" {
		q.Type = agent.TypeBytes
	}
	call := runtime.InstanceCall{
		Agent: q.Name, Key: q.Key, Function: q.Method, Input: agent.Payload{Type: q.Type, Body: q.Body}, Limits: agent.Limits{Wall: q.Timeout},
		Once: onceName(q.Once),
	}
	if form, err := negotiate(q.Accept, typeJSON, typeSSE, typeNDJSON); err == nil && form != typeJSON {
		return s.yielded(ctx, call, form)
	}
	res, err := s.rt.CallInstance(ctx, appOf(ctx), call)
	if err != nil {
		return raw{}, err
	}
	return raw{contentType: res.Output.Type, header: usageHeader(res.Usage), body: res.Output.Body}, nil
}

// onceName is an idempotency key as an instance or a run keeps it: one caller's keys are none of another's.
func onceName(once store.Once) string {
	if once.Key == "" {
		return ""
	}
	name := once.Key + " " + once.Scope
	if len(name) > maxKey {
		return string(agent.DigestOf([]byte(name)))
	}
	return name
}

type listInstancesRequest struct {
	pageQuery
	Name string `path:"name"`
}

func (s *Server) listInstances(ctx context.Context, q listInstancesRequest) (list[agent.Instance], error) {
	return listOf(s.rt.Instances(ctx, appOf(ctx), q.Name, q.page()))
}

func (s *Server) getInstance(ctx context.Context, q instanceRequest) (agent.Instance, error) {
	return s.rt.InspectInstance(ctx, appOf(ctx), q.Name, q.Key)
}

func (s *Server) deleteInstance(ctx context.Context, q instanceRequest) (nothing, error) {
	return nothing{}, s.removeInstances(ctx, q.Name, q.Key)
}

type instanceKeys struct {
	Keys []string `json:"keys"`
}

type deleteInstancesRequest struct {
	Name string       `path:"name"`
	Body instanceKeys `body:"json"`
}

func (s *Server) deleteInstances(ctx context.Context, q deleteInstancesRequest) (nothing, error) {
	return nothing{}, s.removeInstances(ctx, q.Name, q.Body.Keys...)
}

func (s *Server) removeInstances(ctx context.Context, name string, keys ...string) error {
	err := s.rt.DeleteInstances(ctx, appOf(ctx), name, keys...)
	if err != nil {
		return err
	}
	for _, key := range keys {
		err = errors.Join(err, s.audit(ctx, "instance.delete", name, fmt.Sprintf("%q", key)))
	}
	return err
}

func (s *Server) exportInstance(ctx context.Context, q instanceRequest) (*stream, error) {
	return s.export(ctx, func(ctx context.Context, w io.Writer) error {
		return s.rt.ExportInstance(ctx, appOf(ctx), q.Name, q.Key, w)
	})
}

type instanceEventsRequest struct {
	instanceRequest
	eventQuery
}

// instanceEvents answers with a list of an instance's own events or a stream of them.
func (s *Server) instanceEvents(ctx context.Context, q instanceEventsRequest) (any, error) {
	return s.events(ctx, q.eventQuery, part{open: func(ctx context.Context, after int64) (*runtime.Subscription, error) {
		return s.rt.SubscribeInstance(ctx, appOf(ctx), q.Name, q.Key, after)
	}})
}

type listAlarmsRequest struct {
	instanceRequest
	pageQuery
}

func (s *Server) listAlarms(ctx context.Context, q listAlarmsRequest) (list[agent.Alarm], error) {
	return listOf(s.rt.Alarms(ctx, appOf(ctx), q.Name, q.Key, q.After, q.Limit))
}

type deadLettersRequest struct {
	pageQuery
	Name string `path:"name"`
}

func (s *Server) listDeadLetters(ctx context.Context, q deadLettersRequest) (list[agent.Alarm], error) {
	return listOf(s.rt.DeadLetters(ctx, appOf(ctx), q.Name, q.page()))
}

type alarmRequest struct {
	instanceRequest
	Alarm string `path:"alarm" doc:"escaped: its slashes are %2F"`
}

func (s *Server) deleteAlarm(ctx context.Context, q alarmRequest) (nothing, error) {
	err := s.rt.CancelAlarms(ctx, appOf(ctx), q.Name, q.Key, q.Alarm)
	if err == nil {
		err = s.audit(ctx, "alarm.delete", q.Name, fmt.Sprintf("%q of instance %q", q.Alarm, q.Key))
	}
	return nothing{}, err
}

func (s *Server) retryAlarm(ctx context.Context, q alarmRequest) (agent.Alarm, error) {
	a, err := s.rt.RetryAlarm(ctx, appOf(ctx), q.Name, q.Key, q.Alarm)
	if err == nil {
		err = s.audit(ctx, "alarm.retry", q.Name, fmt.Sprintf("%q of instance %q", q.Alarm, q.Key))
	}
	return a, err
}
