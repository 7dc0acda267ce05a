package kube

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

const (
	jsonType  = "application/json"
	patchType = "application/json-patch+json" // RFC 6902
	poll      = 200 * time.Millisecond
	cleanup   = 20 * time.Second
)

// Create makes the pod of r, with its gate; for a pet its claim; and the policy that denies all. It returns the pod that is there when there is one.
func (p *Provider) Create(ctx context.Context, r *sandbox.Request) (sandbox.Handle, error) {
	h := r.Handle()
	labels, err := labelsOf(r)
	if err != nil {
		return "", err
	}
	if p.o.Node == "" {
		return "", &agent.Error{
			Kind: agent.Invalid, Msg: agent.SandboxUnavailable + ": kubernetes has no node for boxes: " + sandbox.SocketMount + " is none", Err: sandbox.ErrUnavailable,
			Hint: "say which node this server runs on: skep serve --sandbox-node NAME",
		}
	}
	// A node would wait for them for ever, and has what this process has by the same paths.
	if err := r.CheckFiles(p.Name(), "was the folder of the server moved? In a pod, it is mounted from the node by the same path"); err != nil {
		return "", err
	}
	if err := p.checkRuntime(ctx, r.Runtime); err != nil {
		return "", err
	}
	policies := p.path("/apis/networking.k8s.io/v1", "networkpolicies", "")
	if err := p.call(ctx, "make the network policy of boxes", http.MethodPost, policies, jsonType, policyOf(), nil); err != nil && agent.KindOf(err) != agent.Exists {
		return "", err
	}
	if r.Volume != "" {
		if err := p.ensureClaim(ctx, r); err != nil {
			return "", err
		}
	}
	err = p.call(ctx, "make a box", http.MethodPost, p.pod(""), jsonType, podOf(r, &p.o, labels), nil)
	if agent.KindOf(err) != agent.Exists {
		return h, err
	}
	there, err := p.get(ctx, h)
	if agent.KindOf(err) == agent.NotFound {
		return "", &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("kubernetes: the box %s is being deleted", h), Hint: "try again"}
	}
	if err != nil {
		return "", err
	}
	for name, value := range labels {
		if there.Metadata.Labels[name] != value {
			return "", &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("kubernetes: there is a pod %s that is not of this server", h), Hint: "remove it: kubectl delete pod " + string(h)}
		}
	}
	return h, nil
}

// checkRuntime refuses a runtime that the cluster has no class of, as far as the account may see that.
func (p *Provider) checkRuntime(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	has, err := p.runtimes(ctx)
	if err != nil || slices.Contains(has, name) {
		if agent.KindOf(err) == agent.Denied {
			return nil
		}
		return err
	}
	return sandbox.NoRuntime(p.Name(), name, has, "kubectl get runtimeclasses")
}

func (p *Provider) get(ctx context.Context, h sandbox.Handle) (*pod, error) {
	var got pod
	return &got, p.call(ctx, "look at a box", http.MethodGet, p.pod(string(h)), "", nil, &got)
}

// Start takes the gate of a pod away, waits until it runs, and writes boot to the standard input of its driver.
func (p *Provider) Start(ctx context.Context, h sandbox.Handle, boot io.Reader) error {
	got, err := p.get(ctx, h)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			return &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("kubernetes: there is no box %s", h), Hint: "it was deleted, or never made"}
		}
		return err
	}
	// The test makes one win of two that start at once.
	open := []object{{"op": "test", "path": "/spec/schedulingGates/0/name", "value": gate}, {"op": "remove", "path": "/spec/schedulingGates"}}
	if got.state().Phase == sandbox.Created {
		err = p.call(ctx, "start a box", http.MethodPatch, p.pod(string(h)), patchType, open, nil)
	}
	if got.state().Phase != sandbox.Created || agent.KindOf(err) == agent.Invalid {
		return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("kubernetes: the box %s was started", h), Hint: "a pod is started once; delete it and make another generation"}
	}
	if err == nil {
		if err = p.untilRunning(ctx, h); err == nil {
			err = p.attach(ctx, h, boot)
		}
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		_ = p.Stop(undo, h, 0) // who gets err looks at the box again
	}
	return err
}

func (p *Provider) untilRunning(ctx context.Context, h sandbox.Handle) error {
	last := ""
	return p.until(ctx, "start", &last, func() (bool, error) {
		got, err := p.get(ctx, h)
		if err != nil {
			return false, err
		}
		last = got.why()
		return got.running()
	})
}

// until polls until done. When ctx ends it says what was last seen.
func (p *Provider) until(ctx context.Context, what string, last *string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("kubernetes: the box did not %s in time: %s", what, *last), Err: ctx.Err(), Hint: "has its node room for it? kubectl describe pod tells"}
		case <-time.After(poll):
		}
	}
}

// Inspect says where a box stands.
func (p *Provider) Inspect(ctx context.Context, h sandbox.Handle) (sandbox.State, error) {
	got, err := p.get(ctx, h)
	if agent.KindOf(err) == agent.NotFound {
		return sandbox.State{Phase: sandbox.Absent}, nil
	}
	if err != nil {
		return sandbox.State{}, err
	}
	return got.state(), nil
}

// Stop deletes the pod, with grace, for Kubernetes has no pods that do not run: a box that was stopped is absent. One that has not started stays.
func (p *Provider) Stop(ctx context.Context, h sandbox.Handle, grace time.Duration) error {
	s, err := p.Inspect(ctx, h)
	if err != nil || s.Phase != sandbox.Running {
		return err
	}
	return p.remove(ctx, h, int(math.Ceil(grace.Seconds())))
}

// Delete deletes the pod. When it returns nil, there is none.
func (p *Provider) Delete(ctx context.Context, h sandbox.Handle) error { return p.remove(ctx, h, 0) }

func (p *Provider) remove(ctx context.Context, h sandbox.Handle, grace int) error {
	options := object{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace, "propagationPolicy": "Background"}
	err := p.call(ctx, "delete a box", http.MethodDelete, p.pod(string(h)), jsonType, options, nil)
	if err != nil && agent.KindOf(err) != agent.NotFound {
		return err
	}
	last := "it is there"
	return p.until(ctx, "end", &last, func() (bool, error) {
		_, err := p.get(ctx, h)
		if agent.KindOf(err) == agent.NotFound {
			return true, nil
		}
		return false, err
	})
}

// List lists the boxes of owner.
func (p *Provider) List(ctx context.Context, owner string) ([]sandbox.Observed, error) {
	var got struct{ Items []pod }
	if err := p.call(ctx, "list boxes", http.MethodGet, p.pod("")+selector(owner), "", nil, &got); err != nil {
		return nil, err
	}
	var out []sandbox.Observed
	for _, c := range got.Items {
		generation, _ := strconv.ParseInt(c.Metadata.Labels[sandbox.GenerationLabel], 10, 64) // 0: of nobody who is known
		out = append(out, sandbox.Observed{
			Handle: sandbox.Handle(c.Metadata.Name), ID: agent.SandboxID(c.Metadata.Labels[sandbox.BoxLabel]), Generation: generation,
			State: c.state(), Created: c.Metadata.CreationTimestamp,
		})
	}
	return out, nil
}

func selector(owner string) string {
	return "?labelSelector=" + url.QueryEscape(sandbox.OwnerLabel+"="+owner)
}

func (p *Provider) claim(name string) string {
	return p.path("/api/v1", "persistentvolumeclaims", name)
}

func (p *Provider) ensureClaim(ctx context.Context, r *sandbox.Request) error {
	err := p.call(ctx, "make the volume "+r.Volume, http.MethodPost, p.claim(""), jsonType, claimOf(r, p.o.StorageClass), nil)
	if agent.KindOf(err) != agent.Exists {
		return err
	}
	var there struct {
		Metadata struct{ Labels map[string]string }
	}
	if err := p.call(ctx, "look at the volume "+r.Volume, http.MethodGet, p.claim(r.Volume), "", nil, &there); err != nil {
		return err
	}
	if there.Metadata.Labels[sandbox.OwnerLabel] != r.Owner {
		return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("kubernetes: there is a volume %s that is not of this server", r.Volume), Hint: "remove it: kubectl delete pvc " + r.Volume}
	}
	return nil
}

// DeleteVolume deletes what was kept of a pet. One that a box has is a Conflict: Kubernetes would wait for the box, and let no other have it.
func (p *Provider) DeleteVolume(ctx context.Context, name string) error {
	var boxes struct{ Items []pod }
	if err := p.call(ctx, "list boxes", http.MethodGet, p.pod("")+"?labelSelector="+sandbox.OwnerLabel, "", nil, &boxes); err != nil {
		return err
	}
	for _, b := range boxes.Items {
		if b.has(name) {
			return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("kubernetes: the box %s has the volume %s", b.Metadata.Name, name), Hint: "delete the box first"}
		}
	}
	err := p.call(ctx, "delete the volume "+name, http.MethodDelete, p.claim(name), "", nil, nil)
	if agent.KindOf(err) == agent.NotFound {
		return nil
	}
	return err
}

// ListVolumes lists what is kept of the pets of an owner.
func (p *Provider) ListVolumes(ctx context.Context, owner string) ([]string, error) {
	return p.names(ctx, "list volumes", p.claim("")+selector(owner))
}
