package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// kept is what is kept of a pet, each in a volume of its own: older engines cannot mount a part of one.
var kept = map[string]string{sandbox.Workspace: "workspace", sandbox.Home: "home"}

func volumeName(name, target string) string { return name + "-" + kept[target] }

func volumeMount(name, target string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: volumeName(name, target), Target: target, VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
}

// seedDir is where the volumes are in the container that gives them to their user.
const seedDir = "/seed"

// ensureVolumes makes the volumes of r when they are not there, and gives them to the user of the box. A volume begins as root's, and there is no root in a
// box, so the engine unpacks an archive of their two folders over them, in a container that is never started.
func (p *Provider) ensureVolumes(ctx context.Context, r *sandbox.Request, image string) error {
	labels := map[string]string{sandbox.OwnerLabel: r.Owner, sandbox.VolumeLabel: r.Volume}
	for target := range kept {
		v, err := p.api.VolumeCreate(ctx, client.VolumeCreateOptions{Name: volumeName(r.Volume, target), Labels: labels})
		if err != nil {
			return p.fail("make the volume "+r.Volume, err)
		}
		if v.Volume.Labels[sandbox.OwnerLabel] != r.Owner {
			return &agent.Error{
				Kind: agent.Conflict, Msg: fmt.Sprintf("%s: there is a volume %s that is not of this server", p.name, v.Volume.Name),
				Hint: "remove it: docker volume rm " + v.Volume.Name,
			}
		}
	}
	return p.seed(ctx, r, image)
}

func (p *Provider) seed(ctx context.Context, r *sandbox.Request, image string) error {
	name := seedName(r.Volume)
	if err := p.remove(ctx, name); err != nil { // of a server that died here
		return err
	}
	archive := &bytes.Buffer{}
	tw := tar.NewWriter(archive)
	var mounts []mount.Mount
	for target, base := range kept {
		m := volumeMount(r.Volume, target)
		m.Target = path.Join(seedDir, base)
		mounts = append(mounts, m)
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: base + "/", Mode: 0o700, Uid: sandbox.UserID, Gid: sandbox.UserID}); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	_, err := p.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: name, Config: &container.Config{Image: image, Entrypoint: []string{sandbox.Driver}},
		HostConfig: &container.HostConfig{NetworkMode: "none", Mounts: mounts},
	})
	if err != nil {
		return p.fail("give the volume "+r.Volume+" to its user", err)
	}
	_, err = p.api.CopyToContainer(ctx, name, client.CopyToContainerOptions{DestinationPath: seedDir, Content: archive})
	if err != nil {
		err = p.fail("give the volume "+r.Volume+" to its user", err)
	}
	if gone := p.remove(context.WithoutCancel(ctx), name); err == nil {
		err = gone
	}
	return err
}

func seedName(volume string) string { return "skep-seed-" + volume }

// DeleteVolume deletes what was kept of a pet. It is a Conflict as long as there is a box that has it.
func (p *Provider) DeleteVolume(ctx context.Context, name string) error {
	if err := p.remove(ctx, seedName(name)); err != nil {
		return err
	}
	for target := range kept {
		_, err := p.api.VolumeRemove(ctx, volumeName(name, target), client.VolumeRemoveOptions{})
		if err != nil && !errdefs.IsNotFound(err) {
			return p.fail("delete the volume "+name, err)
		}
	}
	return nil
}

// ListVolumes lists what is kept of the pets of an owner, by the names of Request.Volume.
func (p *Provider) ListVolumes(ctx context.Context, owner string) ([]string, error) {
	got, err := p.api.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label", sandbox.OwnerLabel+"="+owner)})
	if err != nil {
		return nil, p.fail("list volumes", err)
	}
	var names []string
	for _, v := range got.Items {
		if name := v.Labels[sandbox.VolumeLabel]; name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
