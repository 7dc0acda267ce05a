package script

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/internal/wire"
)

// A suspended call goes on in the image that it was made in. A later version of Skep has another prelude, so its images are
// others; with the old one exported, the call goes on nevertheless, as long as the engine is the same and the prelude can be
// driven. The form of an exported image is:
//
//	"skepagnt", version     8 bytes and 1
//	bridge                  1: bridgeVersion
//	handles                 how many, then 4 bytes each, little-endian
//	image                   as cell.Image exports it, to the checksum
//	checksum                32 bytes: SHA-256 of all before
const (
	exportMagic   = "skepagnt"
	exportVersion = 1

	// bridgeVersion changes when this package could not drive a prelude any more that was built before: when a function of
	// bridge goes or takes something else, or a kind of entry does. A test notices.
	bridgeVersion = 1
)

// list returns the handles as they are exported.
func (h *handles) list() []*uint32 {
	list := []*uint32{&h.entry, &h.undefined, &h.isTrue, &h.isFalse, &h.argv, &h.scratch, &h.allocated}
	for i := range h.kinds {
		list = append(list, &h.kinds[i])
	}
	return list
}

func exportImage(i *cell.Image, h *handles) ([]byte, error) {
	image, err := i.Export()
	if err != nil {
		return nil, err
	}
	list := h.list()
	b := append(make([]byte, 0, len(image)+128), exportMagic...)
	b = append(b, exportVersion, bridgeVersion)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, *v)
	}
	b = append(b, image...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// importImage makes an image of the same engine as like's. Close it.
func importImage(like *cell.Image, b []byte, most int64) (*cell.Image, *handles, error) {
	const head = len(exportMagic) + 2
	switch {
	case len(b) < head+sha256.Size || string(b[:len(exportMagic)]) != exportMagic:
		return nil, nil, badImage("it is none")
	case b[head-2] != exportVersion || b[head-1] != bridgeVersion:
		return nil, nil, &agent.Error{
			Kind: agent.Conflict, Msg: "the image was exported by a version of Skep that this one cannot follow",
			Hint: "run the code again from its journal",
		}
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, nil, badImage("its checksum is wrong")
	}
	r, h := wire.Reader{B: body[head:]}, &handles{}
	list := h.list()
	if r.Number(math.MaxUint8) != uint64(len(list)) || len(r.B) < 4*len(list) {
		return nil, nil, badImage("it cannot be read")
	}
	for n, v := range list {
		*v = binary.LittleEndian.Uint32(r.B[4*n:])
	}
	i, err := like.Import(r.B[4*len(list):], most)
	return i, h, err
}

func badImage(why string) error {
	return &agent.Error{Kind: agent.Invalid, Msg: "the exported image is damaged: " + why}
}
