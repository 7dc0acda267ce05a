package image

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// linker finds what a program needs to be loaded, as ld.so(8) of glibc and of musl would: it reads, and runs nothing.
// A library that a program opens while it runs (dlopen) is not in its file and is not found.
type linker struct {
	root  string   // of the files that are looked at; "" for the host's own
	dirs  []string // where libraries are looked for, after those that a program names
	built []string // those of dirs that a loader knows by itself, without a file that says so
}

// newLinker reads the search path of the host below root: /etc/ld.so.conf (glibc) or /etc/ld-musl-*.path, and then the directories that are built in.
func newLinker(root string) *linker {
	l := &linker{root: root}
	l.dirs = l.readConf("/etc/ld.so.conf", 0)
	musl, _ := filepath.Glob(filepath.Join(root, "/etc/ld-musl-*.path"))
	for _, file := range musl {
		b, _ := os.ReadFile(file)
		l.dirs = append(l.dirs, strings.FieldsFunc(string(b), func(r rune) bool { return r == ':' || r == '\n' })...)
	}
	multi, _ := filepath.Glob(filepath.Join(root, "/lib/*-linux-gnu*"))
	for _, dir := range multi {
		l.built = append(l.built, strings.TrimPrefix(dir, root), "/usr"+strings.TrimPrefix(dir, root))
	}
	l.built = append(l.built, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	l.dirs = append(l.dirs, l.built...)
	return l
}

// readConf returns the directories of a file in the form of ld.so.conf, with those of the files that it includes, eight deep at most.
func (l *linker) readConf(name string, depth int) []string {
	f, err := os.Open(filepath.Join(l.root, name))
	if err != nil || depth > 8 {
		return nil
	}
	defer f.Close()
	var dirs []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "hwcap":
		case words[0] == "include":
			for _, pattern := range words[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(name), pattern)
				}
				files, _ := filepath.Glob(filepath.Join(l.root, pattern)) // sorted
				for _, file := range files {
					dirs = append(dirs, l.readConf(strings.TrimPrefix(file, l.root), depth+1)...)
				}
			}
		default:
			dirs = append(dirs, strings.TrimRight(words[0], ":,"))
		}
	}
	return dirs
}

// object is what the header of a program or a library says.
type object struct {
	class   elf.Class
	machine elf.Machine
	interp  string   // the program's loader; "" of a library, and of a static program
	needed  []string // names of libraries
	rpath   []string // directories: DT_RPATH, for the libraries of its libraries, too
	runpath []string // directories: DT_RUNPATH
}

var errNotELF = errors.New("no ELF file")

// readObject reads the header of a file of the machine. It returns errNotELF for a script, say.
func (l *linker) readObject(name string) (*object, error) {
	path, err := l.real(name)
	if err != nil {
		return nil, err
	}
	f, err := elf.Open(path)
	if err != nil {
		var form *elf.FormatError
		if errors.As(err, &form) || strings.HasSuffix(err.Error(), "EOF") {
			return nil, errNotELF
		}
		return nil, err
	}
	defer f.Close()
	o := &object{class: f.Class, machine: f.Machine}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			return nil, err
		}
		o.interp = strings.TrimRight(string(b), "\x00")
	}
	if o.needed, err = f.DynString(elf.DT_NEEDED); err != nil {
		return nil, fmt.Errorf("read what %s needs: %w", name, err)
	}
	o.rpath = l.searchPath(f, elf.DT_RPATH, name)
	if o.runpath = l.searchPath(f, elf.DT_RUNPATH, name); o.runpath != nil {
		o.rpath = nil // ld.so: DT_RPATH counts only without DT_RUNPATH
	}
	return o, nil
}

// searchPath returns the directories of a tag, with $ORIGIN for the folder that the file is really in.
func (l *linker) searchPath(f *elf.File, tag elf.DynTag, name string) []string {
	values, _ := f.DynString(tag)
	var dirs []string
	for _, value := range values {
		for dir := range strings.SplitSeq(value, ":") {
			origin := filepath.Dir(name)
			if real, err := l.real(name); err == nil {
				origin = filepath.Dir(strings.TrimPrefix(real, l.root))
			}
			dir = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin, "$LIB", "lib", "${LIB}", "lib").Replace(dir)
			if dir != "" {
				dirs = append(dirs, filepath.Clean(dir))
			}
		}
	}
	return dirs
}

// real is the file of the machine that a name below root means, over links.
func (l *linker) real(name string) (string, error) {
	if l.root == "" {
		return filepath.EvalSymlinks(name)
	}
	var path string
	err := walkLinks(l.root, name, func(step, link string) error {
		path = filepath.Join(l.root, step)
		return nil
	})
	return path, err
}

// closure returns the paths of all that the named programs need beside themselves, sorted: loaders and libraries, by the names that ld.so would open.
// Files that are no ELF need nothing. A library that is not there is agent.NotFound, and the error says of what.
func (l *linker) closure(programs ...string) ([]string, error) {
	found := map[string]bool{}
	for _, program := range programs {
		o, err := l.readObject(program)
		if errors.Is(err, errNotELF) {
			continue
		} else if err != nil {
			return nil, agent.Wrap(agent.NotFound, err, "read the program "+program)
		}
		if err := l.load(program, o, found); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// load adds what a program needs to found.
func (l *linker) load(program string, o *object, found map[string]bool) error {
	if o.interp != "" {
		if _, err := l.real(o.interp); err != nil {
			return &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("%s is loaded by %s, which is not there", program, o.interp), Err: err,
				Hint: "it was built for another Linux, or for another processor"}
		}
		found[o.interp] = true
	}
	return l.follow(program, o, nil, found, map[string]bool{})
}

// follow adds what o needs to found. inherited are the DT_RPATHs of those that load it. seen has the names that were resolved for this program: ld.so loads
// a name once.
func (l *linker) follow(name string, o *object, inherited []string, found, seen map[string]bool) error {
	rpath := append(slices.Clone(o.rpath), inherited...)
	for _, lib := range o.needed {
		if seen[lib] {
			continue
		}
		seen[lib] = true
		path, got := l.find(lib, o, slices.Concat(rpath, o.runpath, l.dirs))
		if got == nil {
			return &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("%s needs the library %s, which is not there", name, lib),
				Hint: "install it, or leave the program out"}
		}
		found[path] = true
		if err := l.follow(path, got, rpath, found, seen); err != nil {
			return err
		}
	}
	return nil
}

// find returns the first file of dirs that has the name and is for the same processor.
func (l *linker) find(lib string, by *object, dirs []string) (string, *object) {
	if strings.Contains(lib, "/") {
		dirs, lib = []string{filepath.Dir(lib)}, filepath.Base(lib)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, lib)
		o, err := l.readObject(path)
		if err == nil && o.class == by.class && o.machine == by.machine {
			return path, o
		}
	}
	return "", nil
}
