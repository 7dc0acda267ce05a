package stdio

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// maxImage bounds an image that is shown to a model.
const maxImage = 8 << 20

// Image is one that is shown to a model.
type Image struct {
	Type string // such as image/png
	Data []byte
}

// Images reads images, whose paths may be within dir. What is none is Invalid.
func Images(paths []string, dir string) (list []Image, err error) {
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		st, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, agent.Errorf(agent.Invalid, "the image %.200s cannot be read: %s", path, err)
		case !st.Mode().IsRegular():
			return nil, agent.Errorf(agent.Invalid, "%.200s is no file", path)
		case st.Size() > maxImage:
			return nil, agent.Errorf(agent.Invalid, "the image %.200s has %d bytes: %d are allowed", path, st.Size(), maxImage)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, agent.Errorf(agent.Invalid, "the image %.200s cannot be read: %s", path, err)
		}
		typ := http.DetectContentType(b)
		if !strings.HasPrefix(typ, "image/") {
			return nil, agent.Errorf(agent.Invalid, "%.200s is no image", path)
		}
		list = append(list, Image{typ, b})
	}
	return list, nil
}
