package api

import "github.com/skep-dev/skep/agent"

// pageQuery asks for one page of a list.
type pageQuery struct {
	Limit int    `query:"limit" doc:"most items to return, up to 1000; 50 unless given"`
	After string `query:"after" doc:"the cursor that the page before returned as next"`
}

func (q pageQuery) page() agent.Page { return agent.Page{After: q.After, Limit: q.Limit} }

// list is one page of T.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty" doc:"cursor of the next page; absent on the last"`
}

func listOf[T any](items []T, next string, err error) (list[T], error) {
	if items == nil {
		items = []T{}
	}
	return list[T]{items, next}, err
}
