package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// document returns the OpenAPI 3.1 document of the routes.
func document(routes []route, version string) []byte {
	s := &schemas{components: object{}}
	paths := map[string]object{}
	s.of(reflect.TypeFor[problem]())
	for i := range routes {
		r := &routes[i]
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path][strings.ToLower(r.method)] = s.operation(r)
	}
	b, err := json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Skep", "version": version,
			"description": "An agent cloud in one binary. Errors are application/problem+json; lists take a cursor; creations take an Idempotency-Key.",
		},
		"paths":    paths,
		"security": []object{{"token": []string{}}},
		"components": object{
			"schemas":         s.components,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
			"responses": object{"Problem": object{
				"description": "An error.",
				"content":     object{typeProblem: object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
			}},
		},
	})
	if err != nil {
		panic(err) // unreachable: maps of strings
	}
	return b
}

func (s *schemas) operation(r *route) object {
	op := object{"operationId": r.id, "summary": r.summary}
	if r.open {
		op["security"] = []object{}
	}
	var params []object
	for _, f := range r.endpoint.plan.fields {
		switch f.source {
		case "path", "query", "header":
			switch f.name {
			case "Accept", "Content-Type", "Authorization": // OpenAPI says these elsewhere
				continue
			}
			params = append(params, s.parameter(f))
		case "once":
			params = append(params, object{
				"name": "Idempotency-Key", "in": "header", "schema": object{"type": "string", "maxLength": maxKey},
				"description": "makes a repetition of this request within 24 hours answer as the first one did",
			})
		case "body":
			content := object{"*/*": object{}}
			if r.takes != nil {
				content[typeJSON] = object{"schema": s.of(r.takes)}
			}
			if f.name == "json" {
				content = object{typeJSON: object{"schema": s.of(f.typ)}}
			}
			if f.name == "json" || r.method == http.MethodPost {
				op["requestBody"] = object{"required": f.name == "json" && f.absent == "", "content": content}
			}
		}
	}
	if !r.open && !r.whole {
		params = append(params, object{
			"name": headerApp, "in": "header", "schema": object{"type": "string"},
			"description": "the app that this is about; the token's, else default, unless given",
		})
		if !r.passes() {
			params = append(params, object{
				"name": "app", "in": "query", "schema": object{"type": "string"}, "description": "the same, where headers cannot be set",
			})
		}
	}
	if r.owner != "" {
		op["description"] = "Needs an owner's token."
	}
	if r.passes() { // handlers take it from the URL
		params = append(params, object{
			"name": "path", "in": "path", "required": true, "schema": object{"type": "string"}, "description": "any path, slashes included",
		})
	}
	if params != nil {
		op["parameters"] = params
	}
	op["responses"] = s.responses(r)
	return op
}

func (s *schemas) parameter(f fieldPlan) object {
	schema := object{"type": "string"}
	if f.typ != durationType {
		schema = s.of(f.typ)
	}
	if f.absent != "" {
		var v any
		if json.Unmarshal([]byte(f.absent), &v) == nil {
			schema["default"] = v
		}
	}
	p := object{"name": f.name, "in": f.source, "schema": schema}
	if f.doc != "" {
		p["description"] = f.doc
	}
	if f.source == "path" {
		p["required"] = true
	}
	return p
}

func (s *schemas) responses(r *route) object {
	out := object{"default": object{"$ref": "#/components/responses/Problem"}}
	if r.ai {
		out["default"] = object{"description": "An error, in the form of the protocol.", "content": object{typeAny: object{}}}
	}
	results := r.results
	if results == nil {
		results = map[int]reflect.Type{r.status: resultType(r.endpoint.out)}
	}
	for status, t := range results {
		res := object{"description": http.StatusText(status)}
		content := object{}
		for _, m := range r.mediaTypes() {
			switch {
			case m == typeJSON && t != nil:
				content[m] = object{"schema": s.of(t)}
			default:
				content[m] = object{}
			}
		}
		if t != nil || r.media != nil {
			res["content"] = content
		}
		if m, ok := reflect.Zero(r.endpoint.out).Interface().(interface{ result() (any, bool) }); ok && m != nil {
			res["headers"] = object{"Idempotent-Replayed": object{
				"schema": object{"type": "string", "enum": []string{"true"}}, "description": "on the answer to a repeated request",
			}}
		}
		out[strconv.Itoa(status)] = res
	}
	return out
}

func (r *route) mediaTypes() []string {
	if r.media == nil {
		return []string{typeJSON}
	}
	return r.media
}

// resultType returns the type that a handler's result has in JSON, nil when it is not JSON.
func resultType(t reflect.Type) reflect.Type {
	switch t {
	case reflect.TypeFor[nothing](), reflect.TypeFor[raw](), reflect.TypeFor[*content](), reflect.TypeFor[*socket]():
		return nil
	}
	if m, ok := reflect.Zero(t).Interface().(interface{ result() (any, bool) }); ok {
		v, _ := m.result()
		return reflect.TypeOf(v)
	}
	return t
}

// eventResults and uploadResults are for operations whose result has several forms.
func eventResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusOK: reflect.TypeFor[list[agent.Event]]()}
}

func uploadResults() map[int]reflect.Type {
	return map[int]reflect.Type{http.StatusCreated: reflect.TypeFor[agent.Plugin](), http.StatusOK: reflect.TypeFor[checkedPlugin]()}
}
