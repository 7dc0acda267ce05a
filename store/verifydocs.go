package store

import (
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// docs checks that each document can be read and its blobs are there, that heads count what there is, and that it all is of an app that is
// there or is being removed.
func (v verifier) docs() error {
	err := v.walk(prefixDocHead, func(k key, payload []byte) error {
		h, err := parseDocHead(k, payload)
		if err != nil {
			return err
		}
		parts := k.parts(prefixDocHead)
		if len(parts) != 3 {
			return corrupt(k, "key names no documents")
		}
		d := docAt{Docs(parts[0]), agent.App(parts[1]), "x"}
		if d.space == Files {
			d.name = parts[2] + "/x"
		}
		if err := d.check(); err != nil || d.headKey() != k {
			return corrupt(k, "key names no documents")
		}
		gone, err := v.docsGone(k, d.app)
		if err != nil || gone {
			return err
		}
		return v.docGroup(d, h)
	})
	if err != nil {
		return err
	}
	var last key
	err = v.walk(prefixDoc, func(k key, _ []byte) error {
		d, err := parseDocKey(k)
		if err != nil || d.headKey() == last {
			return err
		}
		last = d.headKey()
		gone, err := v.docsGone(k, d.app)
		if err == nil && !gone {
			_, err = mustGet(v.snap, last)
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.walk(prefixDocGone, func(k key, _ []byte) error {
		_, found, err := v.snap.get(recKey(apps, noApp, string(k[len(prefixDocGone):])))
		if err == nil && found {
			err = corrupt(k, "its app is there")
		}
		return err
	})
}

// docGroup checks the documents that h counts together, of which d could be one.
func (v verifier) docGroup(d docAt, h docHead) error {
	var has docHead
	err := v.walk(d.groupPrefix(), func(k key, payload []byte) error {
		at, err := parseDocKey(k)
		if err != nil {
			return err
		}
		r, err := parse(k, payload, nil)
		if err != nil {
			return err
		}
		has.rev, has.count, has.bytes = max(has.rev, r.ord), has.count+1, has.bytes+at.size(r)
		if at.space == modelKeys {
			if err := v.modelKey(k, at, r); err != nil {
				return err
			}
		}
		blobs, err := docBlobs(at.space, r.fields)
		if err != nil {
			return corrupt(k, "%v", err)
		}
		for _, b := range blobs {
			if err := v.blob(k, b, "its file"); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && (has.count != h.count || has.bytes != h.bytes || has.rev > h.rev) {
		err = corrupt(d.headKey(), "it counts %d documents of %d bytes up to revision %d, there are %d of %d up to %d",
			h.count, h.bytes, h.rev, has.count, has.bytes, has.rev)
	}
	if err == nil && d.space == Files {
		_, err = record(v.snap, recKey(sessions, d.app, d.group()), nil)
	}
	return err
}

// docsGone checks that the app of the documents at k is there, or tells that they are being removed.
func (v verifier) docsGone(k key, app agent.App) (bool, error) {
	_, gone, err := v.snap.get(docGoneKey(app))
	if err != nil || gone {
		return gone, err
	}
	if err := appThere(v.snap, app); err != nil {
		return false, corrupt(k, "it belongs to nobody: %v", err)
	}
	return false, nil
}

// docBlobs returns the blobs that a document names, which has the type that its space tells of.
func docBlobs(space Docs, data []byte) (out []agent.Digest, err error) {
	switch space {
	case ToolServers:
		var v agent.ToolServer
		if err = json.Unmarshal(data, &v); v.Document != "" {
			out = append(out, v.Document)
		}
	case Providers:
		var v agent.Provider
		if err = json.Unmarshal(data, &v); v.Script != "" {
			out = append(out, v.Script)
		}
	case Files:
		var v agent.File
		if err = json.Unmarshal(data, &v); v.Digest != "" {
			out = append(out, v.Digest)
		}
	case Skills:
		var v agent.Skill
		err = json.Unmarshal(data, &v)
		for _, f := range v.Files {
			out = append(out, f.Digest)
		}
	default:
		var v json.RawMessage
		err = json.Unmarshal(data, &v)
	}
	return out, err
}
