package api

import (
	"context"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

type listStorageRequest struct {
	instanceRequest
	stateQuery
}

// listStorage is for an instance's own state what listState is for an agent's.
func (s *Server) listStorage(ctx context.Context, q listStorageRequest) (stateList, error) {
	items, next, err := s.rt.ListStorage(ctx, appOf(ctx), q.Name, q.Key, q.state())
	if err != nil {
		return stateList{}, err
	}
	i, err := s.rt.InspectInstance(ctx, appOf(ctx), q.Name, q.Key)
	return stateList{append([]agent.StateEntry{}, items...), next, i.State}, err
}

type storageRequest struct {
	instanceRequest
	Entry string `path:"entry" doc:"key of the storage, escaped: its slashes are %2F"`
}

func (s *Server) getStorage(ctx context.Context, q storageRequest) (raw, error) {
	e, err := s.rt.Storage(ctx, appOf(ctx), q.Name, q.Key, q.Entry)
	if err != nil {
		return raw{}, err
	}
	return rawState(e), nil
}

type putStorageRequest struct {
	storageRequest
	stateValue
}

func (s *Server) putStorage(ctx context.Context, q putStorageRequest) (stateVersion, error) {
	e, err := q.edit(q.Entry)
	if err != nil {
		return stateVersion{}, err
	}
	version, err := s.editStorage(ctx, q.storageRequest, e)
	return stateVersion{version}, err
}

type deleteStorageRequest struct {
	storageRequest
	ifVersion
}

func (s *Server) deleteStorage(ctx context.Context, q deleteStorageRequest) (nothing, error) {
	e := agent.StateEdit{Act: agent.StateDelete, Key: q.Entry}
	if err := q.put(&e); err != nil {
		return nothing{}, err
	}
	_, err := s.editStorage(ctx, q.storageRequest, e)
	return nothing{}, err
}

func (s *Server) editStorage(ctx context.Context, q storageRequest, e agent.StateEdit) (int64, error) {
	version, err := s.rt.EditStorage(ctx, appOf(ctx), q.Name, q.Key, e)
	if err == nil {
		err = s.audit(ctx, "storage."+e.Act.String(), q.Name, fmt.Sprintf("%q of instance %q", e.Key, q.Key))
	}
	return version, err
}
