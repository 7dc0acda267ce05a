//go:build unix

package disk

import "golang.org/x/sys/unix"

// Free returns the room in bytes that an ordinary user has on dir's disk.
func Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
