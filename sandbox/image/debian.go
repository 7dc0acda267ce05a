package image

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// debianHas are packages that every image with that base has, besides what Debian calls essential.
var debianHas = []string{"ca-certificates", "git", "less", "patch", "procps", "ripgrep"}

// debian adds a minimal Debian. Its packages are downloaded from a mirror and checked by Debian's keys.
func (b *builder) debian(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return &agent.Error{Kind: agent.Denied, Msg: "--base debian unpacks a system with its owners, which root alone may do",
			Hint: "run it with sudo; or use --base host, or --base IMAGE"}
	}
	cache, err := b.cacheDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, partPrefix)
	if err != nil {
		return diskError(err, "make a folder in "+cache)
	}
	b.cleanups = append(b.cleanups, func() { os.RemoveAll(dir) })
	packages := b.debs()
	root := filepath.Join(dir, "root")
	b.step("getting Debian %s, which takes minutes", b.Suite)
	if err := b.bootstrap(ctx, root, packages); err != nil {
		return err
	}
	has, err := debsOf(root)
	if err != nil {
		return err
	}
	b.manifest.Packages = append(b.manifest.Packages, has...)
	return b.addRoot(root)
}

// bootstrap runs whichever program there is that unpacks a Debian.
func (b *builder) bootstrap(ctx context.Context, root string, packages []string) error {
	var cmd *exec.Cmd
	if program, err := exec.LookPath("mmdebstrap"); err == nil {
		cmd = exec.CommandContext(ctx, program, "--mode=root", "--variant=minbase", "--include="+strings.Join(packages, ","), b.Suite, root)
	} else if program, err := exec.LookPath("debootstrap"); err == nil {
		cmd = exec.CommandContext(ctx, program, "--variant=minbase", "--include="+strings.Join(packages, ","), b.Suite, root)
	} else {
		return &agent.Error{Kind: agent.Unavailable, Msg: "--base debian needs mmdebstrap or debootstrap, and this machine has neither",
			Hint: "apt-get install mmdebstrap; or use --base host, or --base IMAGE"}
	}
	if b.Mirror != "" {
		cmd.Args = append(cmd.Args, b.Mirror)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return diskError(err, "make "+root)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix()), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	inGroup(cmd)
	cmd.WaitDelay = 20 * time.Second // in which it unmounts what it has mounted
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return agent.Wrap(agent.Cancelled, ctx.Err(), "get Debian: stopped")
	case strings.Contains(out.String(), "No space left on device"):
		return &agent.Error{Kind: agent.Exhausted, Msg: "get Debian: the disk is full", Err: err, Hint: "make room, or put the cache on another disk with --cache"}
	}
	name := filepath.Base(cmd.Path)
	for _, p := range packages {
		if strings.Contains(out.String(), "Unable to locate package "+p) || strings.Contains(out.String(), "Couldn't find these debs: "+p) {
			return &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("Debian %s has no package %s", b.Suite, p), Err: err}
		}
	}
	return &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("get Debian %s: %s failed: %s", b.Suite, name, tail(out.String())), Err: err,
		Hint: "look at whether this machine reaches " + cmp.Or(b.Mirror, "the mirrors of Debian") + "; another is given with --mirror"}
}

// addRoot adds a Debian that was unpacked, and what it lacks; and makes sure that the CLIs find their libraries in it.
func (b *builder) addRoot(root string) error {
	b.step("reading Debian")
	for name, with := range accounts {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return agent.Wrap(agent.Unavailable, err, "read "+name+" of Debian")
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(with(string(text))), 0o644); err != nil {
			return diskError(err, "write "+name+" of Debian")
		}
	}
	if err := b.tree.copyRoot(root); err != nil {
		return agent.Wrap(agent.Unavailable, err, "read Debian")
	}
	l := newLinker(root)
	for _, file := range b.programs() {
		o, err := newLinker("").readObject(file)
		if err != nil {
			return agent.Wrap(agent.Invalid, err, "read the program "+file)
		}
		if err := l.load(path.Base(file), o, map[string]bool{}); err != nil {
			return err
		}
	}
	return nil
}

// debianSkips are folders whose content is of no use in an image, or of the machine that it was made on.
var debianSkips = []string{
	"/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/var/log", "/var/cache", "/var/lib/apt/lists", "/usr/share/man", "/usr/share/info", "/usr/share/lintian",
}

// copyRoot adds a system that lies below root with its owners and links, which may lead anywhere. Set-user-ID is dropped: nothing in a box may gain by it.
func (t *tree) copyRoot(root string) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, root)
		if name == "" {
			return nil
		}
		if slices.Contains(debianSkips, path.Dir(name)) || slices.Contains([]string{"/etc/hostname", "/etc/resolv.conf", "/etc/machine-id"}, name) ||
			strings.HasPrefix(name, "/usr/share/doc/") && d.Type().IsRegular() && path.Base(name) != "copyright" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{mode: info.Mode() &^ (fs.ModeSetuid | fs.ModeSetgid)}
		var links uint64
		var id inode
		if e.uid, e.gid, links, id, err = ownerOf(info); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch d.Type() {
		case 0:
			e.file, e.size = file, info.Size()
			if links > 1 {
				e.inode = id
			}
		case fs.ModeDir:
		case fs.ModeSymlink:
			if e.link, err = os.Readlink(file); err != nil {
				return err
			}
		default: // of the devices that it has, an engine makes its own
			return nil
		}
		t.put(name, e)
		return nil
	})
}
