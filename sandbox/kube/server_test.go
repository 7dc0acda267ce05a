package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// server is an API server that has pods, claims and policies of one namespace, and what a kubelet would say of them. It checks what the real one checks of
// what is used here: names that are taken, a gate that can only be taken away, a token.
type server struct {
	mu       sync.Mutex
	t        *testing.T
	things   map[string]map[string]any // by path
	boot     map[string]string         // what was written to a pod's standard input
	closed   map[string]bool           // it was closed by word
	waiting  string                    // reason why a started pod does not run
	old      bool                      // it speaks the fourth protocol alone
	requests []string
}

func newServer(t *testing.T) (*server, *httptest.Server) {
	s := &server{t: t, things: map[string]map[string]any{}, boot: map[string]string{}, closed: map[string]bool{}}
	h := httptest.NewTLSServer(s)
	t.Cleanup(h.Close)
	return s, h
}

const namespace = "/api/v1/namespaces/boxes/"

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object{"kind": "Status", "code": code, "reason": reason, "message": message})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret" {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	path := r.URL.Path
	switch last := path[strings.LastIndex(path, "/")+1:]; {
	case path == "/version":
		_, _ = w.Write([]byte(`{"gitVersion":"v1.33.1","major":"1","minor":"33"}`))
	case last == "attach":
		s.attach(w, r, strings.TrimSuffix(path, "/attach"))
	case last == "exec":
		s.exec(w, r)
	case last == "log":
		_, _ = w.Write([]byte("one\ntwo\n"))
	case r.Method == http.MethodPost:
		s.post(w, r)
	default:
		s.rest(w, r)
	}
}

func (s *server) post(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		status(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	meta := in["metadata"].(map[string]any)
	path := r.URL.Path + "/" + meta["name"].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.things[path] != nil {
		status(w, http.StatusConflict, "AlreadyExists", path+" already exists")
		return
	}
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	if strings.HasSuffix(r.URL.Path, "/pods") {
		in["status"] = map[string]any{"phase": "Pending"}
	}
	s.things[path] = in
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(in)
}

func (s *server) rest(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	if strings.HasSuffix(path, "/pods") || strings.HasSuffix(path, "/persistentvolumeclaims") {
		s.list(w, path, r.URL.Query().Get("labelSelector"))
		return
	}
	thing := s.things[path]
	if thing == nil {
		status(w, http.StatusNotFound, "NotFound", path+" not found")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		delete(s.things, path)
	case http.MethodPatch:
		spec := thing["spec"].(map[string]any)
		if r.Header.Get("Content-Type") != patchType || spec["schedulingGates"] == nil {
			status(w, http.StatusUnprocessableEntity, "Invalid", "the server rejected our request due to an error in our request")
			return
		}
		delete(spec, "schedulingGates")
		state := map[string]any{"running": map[string]any{"startedAt": time.Now().UTC().Format(time.RFC3339)}}
		phase := "Running"
		if s.waiting != "" {
			phase, state = "Pending", map[string]any{"waiting": map[string]any{"reason": s.waiting, "message": "of the kubelet"}}
		}
		s.setState(path, phase, state)
	}
	_ = json.NewEncoder(w).Encode(thing)
}

func (s *server) setState(path, phase string, state map[string]any) {
	s.things[path]["status"] = map[string]any{"phase": phase, "containerStatuses": []any{map[string]any{"name": container, "state": state}}}
}

func (s *server) list(w http.ResponseWriter, path, selector string) {
	key, value, _ := strings.Cut(selector, "=")
	items := []any{}
	for at, thing := range s.things {
		labels, _ := thing["metadata"].(map[string]any)["labels"].(map[string]any)
		if strings.HasPrefix(at, path+"/") && labels[key] == value {
			items = append(items, thing)
		}
	}
	_ = json.NewEncoder(w).Encode(object{"items": items})
}

func (s *server) protocols() []string {
	if s.old {
		return []string{older}
	}
	return []string{closable, older}
}

func (s *server) attach(w http.ResponseWriter, r *http.Request, path string) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: s.protocols()})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	for {
		_, b, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		s.mu.Lock()
		switch {
		case b[0] == stdin && r.URL.Query().Get("stdin") == "true":
			s.boot[path] += string(b[1:])
		case b[0] == closed && b[1] == stdin:
			s.closed[path] = true
		}
		s.mu.Unlock()
	}
}

func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: s.protocols()})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	command := strings.Join(r.URL.Query()["command"], " ")
	send := func(channel byte, text string) {
		_ = ws.Write(r.Context(), websocket.MessageBinary, append([]byte{channel}, text...))
	}
	send(stdout, "ran "+command)
	send(stderr, "err")
	switch command {
	case "good":
		send(outcome, `{"status":"Success"}`)
	case "three":
		send(outcome, `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`)
	default:
		send(outcome, fmt.Sprintf(`{"status":"Failure","reason":"InternalError","message":"no such program: %s"}`, command))
	}
	_, _ = io.Copy(io.Discard, r.Body)
}
