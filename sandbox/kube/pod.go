package kube

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

const (
	gate      = "dev.skep/start" // the scheduling gate, which Start takes away
	container = "box"
	policy    = "skep-boxes" // the NetworkPolicy of all boxes of the namespace
)

// object is what is sent to the API server.
type object = map[string]any

// pod is what is read of one.
type pod struct {
	Metadata struct {
		Name              string
		CreationTimestamp time.Time
		Labels            map[string]string
	}
	Spec struct {
		SchedulingGates []struct{ Name string }
		Volumes         []struct {
			PersistentVolumeClaim struct{ ClaimName string }
		}
	}
	Status struct {
		Phase             string // Pending, Running, Succeeded, Failed, Unknown
		Reason, Message   string
		Conditions        []struct{ Type, Status, Message string }
		ContainerStatuses []struct {
			State struct {
				Waiting    *struct{ Reason, Message string }
				Running    *struct{ StartedAt time.Time }
				Terminated *struct {
					ExitCode        int
					Reason, Message string
					FinishedAt      time.Time
				}
			}
		}
	}
}

// state: a pod without its gate was started, even if its node has not begun.
func (p *pod) state() sandbox.State {
	s := sandbox.State{Phase: sandbox.Running, Reason: strings.TrimSpace(p.Status.Reason + " " + p.Status.Message), Since: p.Metadata.CreationTimestamp}
	if len(p.Spec.SchedulingGates) > 0 {
		s.Phase = sandbox.Created
	}
	if p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		s.Phase = sandbox.Exited
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return s
	}
	c := p.Status.ContainerStatuses[0].State
	switch {
	case c.Terminated != nil:
		s = sandbox.State{Phase: sandbox.Exited, Code: c.Terminated.ExitCode, OOM: c.Terminated.Reason == "OOMKilled", Reason: c.Terminated.Reason, Since: c.Terminated.FinishedAt}
	case c.Running != nil:
		s.Since = c.Running.StartedAt
	case c.Waiting != nil:
		s.Reason = strings.TrimSpace(c.Waiting.Reason + " " + c.Waiting.Message)
	}
	return s
}

// running tells whether the driver runs, or the error of why it never will.
func (p *pod) running() (bool, error) {
	s := p.state()
	if s.Phase == sandbox.Exited {
		return false, &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("kubernetes: the box %s has ended at once, with status %d: %s", p.Metadata.Name, s.Code, s.Reason)}
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return false, nil
	}
	c := p.Status.ContainerStatuses[0].State
	if c.Waiting != nil {
		e := &agent.Error{Msg: fmt.Sprintf("kubernetes: the box %s cannot start: %s", p.Metadata.Name, s.Reason)}
		switch c.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull":
			e.Kind, e.Hint = agent.NotFound, "push the image that skep image build makes to a registry of the cluster, or load it into its node"
			return false, e
		case "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			e.Kind, e.Hint = agent.Invalid, "look at the events of the pod: kubectl describe pod "+p.Metadata.Name
			return false, e
		}
	}
	return c.Running != nil, nil
}

// has reports whether a pod has a claim.
func (p *pod) has(claim string) bool {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

// why is what the cluster says of a pod that does not start.
func (p *pod) why() string {
	for _, c := range p.Status.Conditions {
		if c.Status != "True" && c.Message != "" {
			return c.Message
		}
	}
	return p.state().Reason
}

var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// labelsOf returns the labels of a box; an owner that is none of a label's values is Invalid.
func labelsOf(r *sandbox.Request) (map[string]string, error) {
	labels := r.Labels()
	for name, value := range labels {
		if !labelValue.MatchString(value) {
			return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("kubernetes: %q is no value of the label %s", value, name), Hint: "it has letters, digits, . _ and -, and at most 63 of them"}
		}
	}
	return labels, nil
}

// podOf is the pod of r on the node of o.
func podOf(r *sandbox.Request, o *Options, labels map[string]string) object {
	memory := func(bytes int64) object {
		return object{"emptyDir": object{"medium": "Memory", "sizeLimit": fmt.Sprint(bytes)}}
	}
	volume := func(name string, source object) object { source["name"] = name; return source }
	mount := func(name, path string) object { return object{"name": name, "mountPath": path} }
	volumes := []object{
		volume("tmp", memory(r.Size.Disk/4)),
		volume("socket", object{"hostPath": object{"path": r.Sockets, "type": "Directory"}}),
		volume("driver", object{"hostPath": object{"path": r.Driver, "type": "File"}}),
	}
	mounts := []object{
		mount("tmp", "/tmp"),
		{"name": "socket", "mountPath": sandbox.SocketDir, "readOnly": true},
		{"name": "driver", "mountPath": sandbox.Driver, "readOnly": true},
	}
	if r.Volume == "" {
		volumes = append(volumes, volume("workspace", memory(r.Size.Disk/2)), volume("home", memory(r.Size.Disk/4)))
		mounts = append(mounts, mount("workspace", sandbox.Workspace), mount("home", sandbox.Home))
	} else {
		volumes = append(volumes, volume("pet", object{"persistentVolumeClaim": object{"claimName": r.Volume}}))
		mounts = append(mounts, object{"name": "pet", "mountPath": sandbox.Workspace, "subPath": "workspace"}, object{"name": "pet", "mountPath": sandbox.Home, "subPath": "home"})
	}
	spec := object{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false, "hostname": "box",
		"schedulingGates": []object{{"name": gate}}, "affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{
			{"matchFields": []object{{"key": "metadata.name", "operator": "In", "values": []string{o.Node}}}},
		}}}},
		"dnsPolicy": "None", "dnsConfig": object{"nameservers": []string{"127.0.0.1"}}, // nobody answers there
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": sandbox.UserID, "runAsGroup": sandbox.UserID, "fsGroup": sandbox.UserID, "seccompProfile": object{"type": "RuntimeDefault"},
		},
		"volumes": volumes,
		"containers": []object{{
			"name": container, "image": r.Image, "imagePullPolicy": o.Pull, "command": []string{sandbox.Driver}, "args": r.Args, "workingDir": sandbox.Workspace,
			"stdin": true, "stdinOnce": true, "env": environ(r.Variables), "volumeMounts": mounts,
			"securityContext": object{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": false, "capabilities": object{"drop": []string{"ALL"}},
			},
			"resources": object{
				"limits":   object{"memory": fmt.Sprint(r.Size.Memory), "cpu": fmt.Sprintf("%dm", int64(r.Size.CPUs*1000)), "ephemeral-storage": "64Mi"},
				"requests": object{"memory": fmt.Sprint(r.Size.Memory / 4), "cpu": "100m"},
			},
		}},
	}
	if r.Runtime != "" {
		spec["runtimeClassName"] = r.Runtime
	}
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": string(r.Handle()), "labels": labels}, "spec": spec}
}

func environ(variables map[string]string) []object {
	env := []object{}
	if _, ok := variables["HOME"]; !ok {
		env = append(env, object{"name": "HOME", "value": sandbox.Home})
	}
	var names []string
	for name := range variables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		env = append(env, object{"name": name, "value": strings.ReplaceAll(variables[name], "$", "$$")}) // else $(NAME) is put in
	}
	return env
}

// policyOf denies every box of the namespace all that comes and goes.
func policyOf() object {
	return object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": policy},
		"spec": object{"podSelector": object{"matchExpressions": []object{{"key": sandbox.BoxLabel, "operator": "Exists"}}}, "policyTypes": []string{"Ingress", "Egress"}},
	}
}

// claimOf is what is kept of a pet.
func claimOf(r *sandbox.Request, class string) object {
	spec := object{"accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": fmt.Sprint(r.Size.Disk)}}}
	if class != "" {
		spec["storageClassName"] = class
	}
	return object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
		"metadata": object{"name": r.Volume, "labels": map[string]string{sandbox.OwnerLabel: r.Owner, sandbox.VolumeLabel: r.Volume}},
	}
}
