package stdio

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/backend"
)

// politely is how long a CLI may take to end after its input has ended.
const politely = 3 * time.Second

// Close ends a CLI that is in no turn: by the end of its input, then by a signal. It returns when done is closed, or ctx has ended.
func Close(ctx context.Context, name string, p backend.Process, done <-chan struct{}) error {
	_ = p.CloseInput()
	wait := time.NewTimer(politely)
	defer wait.Stop()
	select {
	case <-done:
		return nil
	case <-wait.C:
		_ = p.Signal("TERM", true)
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &agent.Error{Kind: agent.Unavailable, Msg: name + " does not end", Err: ctx.Err()}
	}
}

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
