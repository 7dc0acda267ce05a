package driver

import (
	"regexp"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// unreachable matches URLs of git that need another way out than a box has: by SSH, in both its forms, and git's own protocol.
var unreachable = regexp.MustCompile(`^(?:(?:git\+)?ssh|git)://|^[^/:@]+@[^/:]+:`)

// CheckRepoURL returns an Invalid error about the URL of a repository that no box could clone. What git itself refuses it need not.
func CheckRepoURL(url string) error {
	if !unreachable.MatchString(url) {
		return nil
	}
	e := &agent.Error{Kind: agent.Invalid, Msg: "the repository " + url + " is not reached by https, which is the only way out of a sandbox", Hint: "use its https:// URL"}
	if host, path, ok := strings.Cut(strings.TrimPrefix(url, "git@"), ":"); ok && strings.HasPrefix(url, "git@") {
		e.Hint += ", such as https://" + host + "/" + path
	}
	return e
}
