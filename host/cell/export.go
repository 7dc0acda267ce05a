package cell

import (
	"github.com/skep-dev/skep/agent"
)

// An exported image lets snapshots outlive what their image was made by: a later version makes another image of the same
// agent, and still has the one that a snapshot is of. Its form is that of a snapshot, but for the name at its begin, and the
// digest, which is that of the code; its pages are all that are not zero.

const imageMagic = "skepimag"

// Digest names the image by its code, memory and globals. Images with the same digest are the same byte for byte.
func (i *Image) Digest() (agent.Digest, error) {
	b, full, err := i.content()
	if err != nil {
		return "", err
	}
	return agent.Digest("sha256:" + hexOf(i.digest(b, full))), nil
}

// Export returns the image as Import takes it.
func (i *Image) Export() ([]byte, error) {
	b, full, err := i.content()
	if err != nil {
		return nil, err
	}
	s := snapshot{image: i.code.digest(), size: uint32(i.size / pageSize), globals: i.globals}
	s.collect(i.code.engine.packer, b, nil, full)
	return s.encode(imageMagic), nil
}

// Import makes an image that was exported, maybe by another version, of the same code as this one. It is no larger than most
// bytes. Whoever may choose b chooses what runs. Errors are Conflict for other code, else as Restore's.
func (i *Image) Import(b []byte, most int64) (*Image, error) {
	if i.back == nil {
		return nil, errNoImage()
	}
	s, err := readSnapshot(imageMagic, b)
	if err != nil {
		return nil, err
	}
	if want := i.code.digest(); s.image != want {
		return nil, &agent.Error{
			Kind: agent.Conflict, Msg: "the image is of the code sha256:" + hexOf(s.image) + ", and this is sha256:" + hexOf(want),
			Hint: "an image goes with the engine that it was made by",
		}
	}
	size := int64(s.size) * pageSize
	if len(s.globals) != len(i.globals) || s.size < i.code.module.MinPages {
		return nil, damaged("its parts do not fit its code")
	}
	if size > most {
		return nil, agent.Exceeded(agent.LimitMemory, "the image has %d bytes of memory, the limit is %d", size, most)
	}
	memory := make([]byte, size)
	if err := s.apply(i.code.engine.packer, memory); err != nil {
		return nil, err
	}
	made := &Image{code: i.code, size: uint64(size), globals: s.globals}
	if made.back, err = i.code.engine.memories.backing(memory, nil); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "no memory for an image")
	}
	return made, nil
}

// content returns the image's bytes, and spans outside of which they are zero.
func (i *Image) content() ([]byte, []span, error) {
	if i.back == nil {
		return nil, nil, errNoImage()
	}
	b, full, err := i.back.content()
	if err != nil {
		return nil, nil, agent.Wrap(agent.Unavailable, err, "the image of the code cannot be read")
	}
	return b, full, nil
}

func errNoImage() error {
	return agent.Errorf(agent.Invalid, "the code keeps state outside of its memory, which no snapshot holds")
}
