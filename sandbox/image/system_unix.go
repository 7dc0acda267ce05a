//go:build unix

package image

import (
	"errors"
	"io/fs"
	"os/exec"
	"syscall"
)

var errNoOwner = errors.New("no owner is known")

// inGroup puts a program into a process group of its own, all of which is asked to end when its time is over: it starts others.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// ownerOf tells whose a file is, how many names it has, and which file it is.
func ownerOf(info fs.FileInfo) (uid, gid int, links uint64, id inode, err error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0, inode{}, errNoOwner
	}
	return int(stat.Uid), int(stat.Gid), uint64(stat.Nlink), inode{uint64(stat.Dev), stat.Ino}, nil
}
