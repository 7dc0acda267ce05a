//go:build unix

package badgerkv

import "golang.org/x/sys/unix"

// freeBytes returns the room that an ordinary user has on dir's disk.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
