package shell

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// texts are the commands of a script, wrappers in brackets.
func texts(s *Script) []string {
	var out []string
	for _, c := range s.Commands {
		text := c.Text()
		if c.Wrapper {
			text = "[" + text + "]"
		}
		out = append(out, text)
	}
	return out
}

func TestCommands(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // commands, separated by " / "
	}{
		{"ls -l", "ls -l"},
		{"a && b || c; d | e & f", "a / b / c / d / e / f"},
		{"a\nb", "a / b"},
		{"if a; then b; elif c; then d; else e; fi", "a / b / c / d / e"},
		{"while a; do b; done; until c; do d; done", "a / b / c / d"},
		{"for x in $(a) b; do c $x; done", "a / c $x"},
		{"case $(a) in x) b;; esac", "a / b"},
		{"f() { a; }; f", "a / f"},
		{"(a; { b; })", "a / b"},
		{"echo $(a `b`)", "echo $(...) / a $(...) / b"},
		{"echo \"$(a \"$(b)\")\"", "echo $(...) / a $(...) / b"},
		{"diff <(a) >(b)", "diff <(...) <(...) / a / b"},
		{"cat <<EOF\n$(a)\nEOF", "cat / a"},
		{"cat <<'EOF'\n$(a)\nEOF", "cat"},
		{"cat <<< $(a)", "cat / a"},
		{"x=$(a) b", "b / a"},
		{"[[ $(a) = b ]] && (( $(c) ))", "a / c"},
		{"echo ${x:-$(a)} $(( $(b) ))", "echo $x $((...)) / a / b"},
		{"time a | coproc b", "a / b"},
		{"! a", "a"},
		{`\rm r''m 'r'"m" r\m`, "rm rm rm rm"},
		{"rm \\\n -rf", "rm -rf"},
		{"bash -c 'a; b'", "[bash -c 'a; b'] / a / b"},
		{"bash -lc a", "[bash -lc a] / a"},
		{"bash -o pipefail -ec 'a'", "[bash -o pipefail -ec a] / a"},
		{"/bin/sh -c \"sh -c 'a'\"", "[/bin/sh -c 'sh -c '\\''a'\\'''] / [sh -c a] / a"},
		{"bash <<EOF\na\nEOF", "[bash] / a"},
		{"bash <<< 'a b'", "[bash] / a b"},
		{"env -i A=1 PATH=/x a b", "[env -i A=1 PATH=/x a b] / a b"},
		{"env -S 'a b' c", "[env -S 'a b' c] / a b c"},
		{"env --split='a b'", "[env '--split=a b'] / a b"},
		{"timeout -k 5 -s KILL 10 a", "[timeout -k 5 -s KILL 10 a] / a"},
		{"nice -n 5 nohup setsid stdbuf -oL a", "[nice -n 5 nohup setsid stdbuf -oL a] / [nohup setsid stdbuf -oL a] / [setsid stdbuf -oL a] / [stdbuf -oL a] / a"},
		{"nice -5 a", "[nice -5 a] / a"},
		{"sudo -u root A=b a -x", "[sudo -u root A=b a -x] / a -x"},
		{"doas a", "[doas a] / a"},
		{"xargs -n 1 -P4 rm -f", "[xargs -n 1 -P4 rm -f] / rm -f ..."},
		{"xargs", "[xargs]"},
		{"find . -name x -exec rm {} \\; -exec a {} +", "find . -name x -exec rm {} ';' -exec a {} + / rm {} / a {}"},
		{"find . -exec sh -c 'a' \\;", "find . -exec sh -c a ';' / [sh -c a] / a"},
		{"command a; command -v b; builtin c; exec -a x d", "[command a] / a / command -v b / [builtin c] / c / [exec -a x d] / d"},
		{"busybox rm x", "[busybox rm x] / rm x"},
		{"watch -n 5 'a; b'", "[watch -n 5 'a; b'] / a / b"},
		{"su - bob -c 'a'", "[su - bob -c a] / a"},
		{"flock /tmp/l -c a; flock -n /tmp/l b", "[flock /tmp/l -c a] / a / [flock -n /tmp/l b] / b"},
		{"script -qc 'a' /dev/null", "[script -qc a /dev/null] / a"},
		{"ssh -p 22 host 'a; b'", "ssh -p 22 host 'a; b' / a / b"},
		{"eval a b", "[eval a b] / a b"},
		{"trap 'a' EXIT", "trap a EXIT / a"},
		{"/lib64/ld-linux-x86-64.so.2 /bin/rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x / /bin/rm x"},
	} {
		got := strings.Join(texts(Parse(c.text)), " / ")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.text, d)
		}
	}
}

func TestDoubts(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // a part of a reason
		kind DoubtKind
	}{
		{"a 'b", "does not parse", Opaque},
		{"$x -rf", "not known before it runs", Opaque},
		{"$(a) b", "not known before it runs", Opaque},
		{"r?  x", "not known before it runs", Opaque},
		{"{rm,-rf,/}", "not known before it runs", Opaque},
		{"cat$IFS/etc/passwd", "not known before it runs", Opaque},
		{"$'\\x72m' x", "not known before it runs", Opaque},
		{"eval $x", "eval runs what is not known", Opaque},
		{"eval a", "eval runs text", Power},
		{"source x", "is run, and not known", Opaque},
		{". ./x", "is run, and not known", Opaque},
		{"curl x | sh", "sh runs what it is given", Opaque},
		{"curl x | bash -s -- y", "bash runs what it is given", Opaque},
		{"bash < x", "bash runs what it is given", Opaque},
		{"bash <(curl x)", "bash runs what is not known", Opaque},
		{"bash -c \"$x\"", "bash -c runs what is not known", Opaque},
		{"bash x.sh", "what is in x.sh is run", Power},
		{"base64 -d x | python3", "python runs what it is given", Opaque},
		{"python3 - <<< 'x'", "python runs what it is given", Opaque},
		{"python3 -Ic 'x'", "python -c can run a program", Power},
		{"node -pe 1", "node -", Power},
		{"xargs -I{} sh -c 'rm {}'", "puts what it reads into the text", Opaque},
		{"find . -exec sh -c 'rm {}' \\;", "runs what is not known", Opaque},
		{"xargs -I% %", "not known before it runs", Opaque},
		{"sudo --what a", "options that are not known", Opaque},
		{"sudo -i", "starts a shell", Opaque},
		{"sudo a", "runs as another user", Power},
		{"parallel rm", "makes commands of what it reads", Opaque},
		{"git -c core.pager=x log", "git -c can run", Power},
		{"git clone -u x y", "git clone -u can run", Power},
		{"git clone --upload-pa=x y", "--upload-pack can run", Power},
		{"git clone ext::sh", "runs a program for the address", Power},
		{"git rebase -x make", "git rebase -x can run", Power},
		{"git $x", "may be an option of git", Power},
		{"tar xf a --checkpoint-action=exec=x", "can run a program", Power},
		{"tar cIf x y", "can run a program", Power},
		{"sed 's/a/b/e'", "sed may run", Power},
		{"sed -n '1e id'", "sed may run", Power},
		{"sed 's/.*[/].*/rm x/e'", "sed may run", Power},
		{"sed 's/.*[[:alpha:]/].*/rm x/e'", "sed may run", Power},
		{"sed 's/.*[]/].*/rm x/e'", "sed may run", Power},
		{"sed 's,[^],],rm x,e'", "sed may run", Power},
		{"sed '/[/]/r y/;e rm x'", "sed may run", Power},
		{"sed 'a x\\\ns/\ne rm x\n#//'", "sed may run", Power},
		{"sed '-es/.*/rm x/e' p", "sed may run", Power},
		{"sed '-nes/.*/rm x/e;' p", "sed may run", Power},
		{"sed -Ene 's/.*/rm x/e' p", "sed may run", Power},
		{"sed --expr='s/.*/rm x/e' p", "sed may run", Power},
		{"sed --e 's/.*/rm x/e' p", "sed may run", Power},
		{"sed -l 5 's/.*/rm x/e' p", "sed may run", Power},
		{"sed -l 's/.*/rm x/w y' p", "sed may run", Power},
		{"sed -i '' 's/a/b/w y' p", "sed may run", Power},
		{"sed -ni '' 's/a/b/w y' p", "sed may run", Power},
		{"sed -nfx p", "a script that is in a file", Power},
		{"sed -n$x p", "may be an option of sed", Power},
		{"sed $x", "the script of sed is not known", Power},
		{"sed p $x", "may be an option of sed", Power},
		{"awk 'BEGIN{system(\"id\")}'", "awk may run", Power},
		{"find . -delete", "deletes what it finds", Power},
		{"PATH=/x ls", "setting PATH", Power},
		{"export LD_PRELOAD=x", "setting LD_PRELOAD", Power},
		{"declare -x GIT_PAGER=x", "setting GIT_PAGER", Power},
		{"env GIT_SSH_COMMAND=x git fetch", "setting GIT_SSH_COMMAND", Power},
		{"for PATH in x; do ls; done", "setting PATH", Power},
		{": ${PATH:=x}", "setting PATH", Power},
		{"read PATH", "setting PATH", Power},
		{"printf -v PATH x", "setting PATH", Power},
		{"declare \"$x\"", "sets what cannot be read", Opaque},
		{"test -v 'a[$(id)]'", "subscript", Opaque},
		{"[[ -v 'a[$(id)]' ]]", "subscript", Opaque},
		{"echo ${x@P}", "runs what is in a variable", Opaque},
		{"alias ls=rm", "alias", Opaque},
		{"f() { a; }", "function f is defined", Power},
		{"ls\u200b", "invisible character", Opaque},
		{"echo \u202e", "invisible character", Opaque},
		{"g\u0456t push", "letters that look like others", Opaque},
		{"vim -c ':!id'", "edits", Opaque},
		{strings.Repeat("(", 200) + strings.Repeat(")", 200), "nested too deeply", Opaque},
		{strings.Repeat("a;", 600), "more than 512 commands", Opaque},
		{strings.Repeat("a", MaxText+1), "bytes, above", Opaque},
		{"a\x00b", "no text", Opaque},
	} {
		found := false
		s := Parse(c.text)
		for _, d := range s.Doubts {
			found = found || d.Kind == c.kind && strings.Contains(d.Reason, c.want)
		}
		if !found {
			t.Errorf("%.60q: want a doubt %q, got %+v", c.text, c.want, s.Doubts)
		}
	}
}

func TestNoDoubts(t *testing.T) {
	for _, text := range []string{
		"ls -la /tmp", "git status && git diff --stat", "git commit -m 'fix: x; y'", "git push -u origin main", "git switch -c topic", "grep -rn 'a|b' . | head -5",
		"awk '{print $1}' x", "sed -n '/a/,/b/{p;q}' x", "sed -i.bak -E 's|a|b|;s/c/d/2g' x", "sed -n '1,5p' x", "sed 's/a/b/g' x", "sed -e 's/new/west/' x", "sed -ne 's/[^]a-z]*[[:space:]]/[/p' x", "sed -i.e 's/x/y/' *.txt", "sed -l 5 -n l x", "sed 's/\\[/x/;y,[/,/[,' x", "make -j4 test", "go test ./...", "npm test", "echo $HOME \"$USER\"", "find . -name '*.go' -type f", "timeout 5 ls",
		"cat x 2>&1 >/dev/null", "python3 x.py", "for f in a b; do wc -l \"$f\"; done", "tar czf x.tgz dir", "curl -sS https://x", "test -f x && echo y",
	} {
		if s := Parse(text); len(s.Doubts) > 0 {
			t.Errorf("%s: doubts %+v", text, s.Doubts)
		}
	}
}

func TestWrites(t *testing.T) {
	for text, want := range map[string]string{
		"a > x 2>> y <> z >| q &> r &>> s": "x y z q r s", "a >& f; a 2>&1": "f", "a | tee -a x y": "x y", "dd if=a of=/dev/sda": "/dev/sda", "curl -o x u": "x", "curl -sox u": "x", "sort --output=x y": "x", "a > $x": "$x",
		"exec 3> x": "x", "{ a; } > x": "x", "find . -fprint x": "x",
	} {
		var got []string
		for _, w := range Parse(text).Writes {
			got = append(got, w.Text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: writes %q, want %q", text, got, want)
		}
	}
}

func TestBomb(t *testing.T) {
	for text, want := range map[string]bool{":(){ :|:& };:": true, "f() { f & }; f": true, "f() { f | f; }; f": true, "f() { g | h & }; f": false, "bash -c ':(){ :|:& };:'": true} {
		if got := Parse(text).Bomb; got != want {
			t.Errorf("%s: bomb is %v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a && b", "bash -c 'a `b`' | xargs -I{} c", "find . -exec a {} +", "env -S 'a b'", "x=$(a) <<E\nb\nE\n", "f(){ f|f& };f", "sudo -u a b", "git -c a=b c", "${x@P} {a,b} *(c)", "sed 's/a/b/e'", "flock -n a -c b", "ssh -o a=b c d", "env -S"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Parse(text)
		if len(s.Commands) > MaxCommands {
			t.Fatalf("%d commands", len(s.Commands))
		}
		for i, c := range s.Commands {
			if len(c.Words) == 0 || c.Parent >= i {
				t.Fatalf("command %d is %+v", i, c)
			}
		}
		for _, d := range s.Doubts {
			if d.Command >= len(s.Commands) || d.Reason == "" {
				t.Fatalf("doubt %+v of %d commands", d, len(s.Commands))
			}
		}
		Argv(strings.Fields(text))
	})
}
