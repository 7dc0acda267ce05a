package sql_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/sql"
)

// echo is a database that returns the parameters of a statement as a row, and none for an empty one.
type echo struct{ asked []abi.SQL }

func (e *echo) Query(_ context.Context, q abi.SQL) (abi.SQLRows, error) {
	e.asked = append(e.asked, q)
	switch q.Query {
	case "":
		return abi.SQLRows{}, nil
	case "broken":
		return abi.SQLRows{Columns: []string{"half"}}, agent.Exceeded(agent.LimitOutput, "too many rows")
	}
	return abi.SQLRows{Columns: []string{"a"}, Rows: [][]abi.SQLValue{q.Params}, Changes: 3}, nil
}

func TestQuery(t *testing.T) {
	db := &echo{}
	handlers := map[string]grant.Handler{}
	sql.Add(handlers, db)
	door := grant.NewDoor(agent.DefaultLimits(), handlers, nil)
	for _, tt := range []struct{ in, out string }{
		{`{"query":"q","params":[{},{"int":"9223372036854775807"},{"int":"-1"},{"real":0.5},{"text":"a\u0000"},{"text":""},{"bytes":"AP8="},{"bytes":""}]}`,
			`{"columns":["a"],"rows":[[{},{"int":"9223372036854775807"},{"int":"-1"},{"real":0.5},{"text":"a\u0000"},{"text":""},{"bytes":"AP8="},{"bytes":""}]],"changes":3}`},
		{`{"query":""}`, `{"columns":[],"rows":[],"changes":0}`},
	} {
		out, err := door.Call(t.Context(), abi.CallStorageSQL, []byte(tt.in))
		if err != nil {
			t.Fatalf("%s: %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.out, string(out)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, diff)
		}
	}
	asked := len(db.asked)
	for _, in := range []string{`{"query":"q","params":[{"int":"9223372036854775808"}]}`, `{"query":"q","params":[{"int":1}]}`, `{"query":"q","params":[{"int":"1.5"}]}`,
		`{"query":"q","params":[{"real":1e999}]}`, `{"query":"q","params":[{"bytes":"?"}]}`, `{"query":"q","args":[]}`, `{"query":"q"}{}`, `[]`, ``} {
		if _, err := door.Call(t.Context(), abi.CallStorageSQL, []byte(in)); agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", in, err)
		}
	}
	if len(db.asked) != asked {
		t.Errorf("the database was asked %v", db.asked[asked:])
	}
	out, err := door.Call(t.Context(), abi.CallStorageSQL, []byte(`{"query":"broken"}`))
	if e := agent.AsError(err); out != nil || e == nil || e.Limit != agent.LimitOutput {
		t.Errorf("%s, %v", out, err)
	}
}
