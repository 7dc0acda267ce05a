package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skep-dev/skep/store/engine"
)

// volume is an ext4 in a file, mounted over a loop device.
type volume struct{ image, at string }

// newVolume makes and mounts a volume. It needs root.
func newVolume(dir string, mib int64) (*volume, error) {
	v := &volume{filepath.Join(dir, "image"), filepath.Join(dir, "mount")}
	if err := os.MkdirAll(v.at, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(v.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(mib<<20), f.Close()); err != nil {
		return nil, err
	}
	if err := sh("mkfs.ext4", "-q", "-F", "-m", "0", v.image); err != nil {
		return nil, err
	}
	return v, v.mount()
}

// aloneEnv is set in a process that has mounts of its own.
const aloneEnv = "SKEP_FAULT_ALONE"

// alone runs this program again with mounts of its own, if it is root's, and returns how that ended; false means that this is the one. Else
// whatever process begins elsewhere with a copy of all mounts would keep a volume in use whose power was cut, and it could not be mounted anew.
func alone() (code int, again bool, err error) {
	if os.Geteuid() != 0 || os.Getenv(aloneEnv) != "" {
		return 0, false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return 0, true, err
	}
	runtime.LockOSThread() // the child dies with the thread that started it
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt) // the child hears of it, too
	err = cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), true, err
}

func (v *volume) mount() error { return sh("mount", "-o", "loop", v.image, v.at) }

// unmount tries for a while: a process that was killed may still hold files.
func (v *volume) unmount() (err error) {
	for range 100 {
		if err = unix.Unmount(v.at, 0); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("unmount %s: %w", v.at, err)
}

func (v *volume) remove() {
	unix.Unmount(v.at, unix.MNT_DETACH)
	os.Remove(v.image)
}

// cut stops the file system at once: what was not flushed to the device is gone, as in a power cut.
func (v *volume) cut() error {
	f, err := os.Open(v.at)
	if err != nil {
		return err
	}
	defer f.Close()
	const ext4Shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	flags := uint32(noLogFlush)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flags))); e != 0 {
		return fmt.Errorf("EXT4_IOC_SHUTDOWN: %w", e)
	}
	return nil
}

func sh(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// freeze stops a process and waits until each of its threads has stopped, so that nothing is written or acknowledged
// between the power cut and its end.
func (p *process) freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for range 2000 {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		running := false
		for _, name := range stats {
			b, _ := os.ReadFile(name)
			_, state, _ := strings.Cut(string(b), ") ")
			running = running || state != "" && strings.ContainsRune("RDS", rune(state[0]))
		}
		if !running {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the process does not stop")
}

// power cuts the power of a writing process several times, each time after another number of commits.
func power(ctx context.Context, l *lab, t *tally) (err error) {
	v, err := newVolume(l.dir, 2048)
	if err != nil {
		return err
	}
	defer v.remove()
	dir := filepath.Join(v.at, "data")
	if err := prepare(dir, l.engine); err != nil {
		return err
	}
	var acks []ack
	for range l.times(4) {
		p, err := start(ctx, task{Dir: dir, Engine: l.engine, MinFree: -1})
		if err != nil {
			return err
		}
		before := len(acks)
		err = p.collect(&acks, 10*time.Minute, count(1+l.rng.IntN(1500))) // a busy machine takes its time
		if err == nil {
			err = p.freeze()
		}
		if err == nil {
			err = v.cut()
		}
		p.kill(&acks)
		if err != nil {
			return fmt.Errorf("%w: %s", err, p.stderr.String())
		}
		if err := errors.Join(v.unmount(), v.mount()); err != nil {
			return err
		}
		(*t)["power cuts"]++
		(*t)["commits"] += len(acks) - before
		if err := l.audit(ctx, t, dir, acks); err != nil {
			return err
		}
	}
	return v.unmount()
}

// full fills the disk of a writing process: first to where the store must refuse commits, then to the last byte at once,
// and makes room again each time. The process must go on by itself.
func full(ctx context.Context, l *lab, t *tally) error {
	return fill(ctx, l, t, 32<<20, 0)
}

func fill(ctx context.Context, l *lab, t *tally, leave ...int64) error {
	v, err := newVolume(l.dir, 512)
	if err != nil {
		return err
	}
	defer v.remove()
	dir := filepath.Join(v.at, "data")
	if err := prepare(dir, l.engine); err != nil {
		return err
	}
	var acks []ack
	p, err := start(ctx, task{Dir: dir, Engine: l.engine, MinFree: 64 << 20})
	if err != nil {
		return err
	}
	defer p.cmd.Process.Kill()
	for _, leave := range leave {
		if err := p.collect(&acks, time.Minute, count(200+l.rng.IntN(400))); err != nil {
			return fmt.Errorf("%w: %s", err, p.stderr.String())
		}
		hog, err := v.hog(leave)
		if err != nil {
			return err
		}
		(*t)[fmt.Sprintf("filled to %d MiB", leave>>20)]++
		err = p.collect(&acks, 2*time.Second, func(a ack) bool { return a.What == "full" })
		switch {
		case err == nil:
			(*t)["refused while full"]++
		case errors.Is(err, errSilent):
			(*t)["waited while full"]++
		}
		if rerr := os.Remove(hog); rerr != nil {
			return rerr
		}
		if err == nil || errors.Is(err, errSilent) {
			if err = p.collect(&acks, time.Minute, count(200)); err == nil {
				(*t)["went on by itself"]++
				continue
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		(*t)[fmt.Sprintf("died when filled to %d MiB", leave>>20)]++
		if l.engine != engine.Badger || leave > 0 { // Badger's memory map, in a full disk, is known to end the process
			(*t)[died]++
		}
		break
	}
	if err := p.end(&acks); err != nil {
		l.logf("%.300s", err)
	}
	(*t)["commits"] += len(acks)
	return errors.Join(l.audit(ctx, t, dir, acks), v.unmount())
}

// hog makes a file that leaves so many bytes on the volume, at once, and returns its name.
func (v *volume) hog(leave int64) (string, error) {
	name := filepath.Join(v.at, "hog")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for range 100 { // others write meanwhile
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
			return "", err
		}
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return "", err
		}
		more := int64(st.Bavail)*int64(st.Bsize) - leave
		if more <= 0 {
			return name, nil
		}
		err = unix.Fallocate(int(f.Fd()), 0, size, more)
		for ; errors.Is(err, unix.ENOSPC) && more > 4096; more /= 2 {
			err = unix.Fallocate(int(f.Fd()), 0, size, more/2)
		}
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			return "", err
		}
		if err != nil {
			return name, nil
		}
	}
	return name, nil
}
