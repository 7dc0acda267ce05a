package skep

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/skep-dev/skep/abi"
)

// SQL runs a statement of SQLite on the instance's own data, which is part of the turn as Storage is. Several statements without
// parameters may be separated by semicolons. Parameters stand as ? in it, and are nil, numbers, bool (0 or 1), string, []byte, types
// made of these, and pointers to them.
func SQL(query string, params ...any) (*Rows, error) {
	in := abi.SQL{Query: query}
	for i, p := range params {
		v, err := sqlValue(p)
		if err != nil {
			return nil, fmt.Errorf("sql: parameter %d: %w", i+1, err)
		}
		in.Params = append(in.Params, v)
	}
	var out abi.SQLRows
	if err := ask(abi.CallStorageSQL, in, &out); err != nil {
		return nil, err
	}
	return &Rows{Columns: out.Columns, Changes: out.Changes, rows: out.Rows}, nil
}

// Query runs a statement as SQL does and returns its rows, each scanned into a T: see Rows.Scan.
func Query[T any](query string, params ...any) ([]T, error) {
	rows, err := SQL(query, params...)
	if err != nil {
		return nil, err
	}
	list := make([]T, rows.Len())
	for i := range list {
		if err := rows.Scan(i, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Rows is what a statement returned, up to 10,000 rows and 8 MiB.
type Rows struct {
	Columns []string
	Changes int64 // rows that were inserted, changed or deleted

	rows [][]abi.SQLValue
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.rows) }

// Scan reads row i, from 0, into what out points to:
//
//   - a struct: each column goes to the field whose tag `sql` or `json`, or else whose name, is the column's, in any case of letters;
//     columns without a field are left out
//   - a map[string]any: values are nil, int64, float64, string and []byte
//   - anything else: the first column
//
// Null leaves a field as it is, and makes a pointer nil.
func (r *Rows) Scan(i int, out any) error {
	p := reflect.ValueOf(out)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return errors.New("sql: Scan needs a pointer to put a row in")
	}
	if i < 0 || i >= len(r.rows) {
		return fmt.Errorf("sql: row %d of %d", i, len(r.rows))
	}
	row := r.rows[i]
	if len(row) != len(r.Columns) || len(row) == 0 {
		return fmt.Errorf("sql: the row has %d values in %d columns", len(row), len(r.Columns))
	}
	switch to := p.Elem(); {
	case to.Kind() == reflect.Struct:
		for c, name := range r.Columns {
			if f, ok := fieldOf(to, name); ok {
				if err := setField(f, row[c]); err != nil {
					return fmt.Errorf("sql: column %q: %w", name, err)
				}
			}
		}
		return nil
	case to.Type() == reflect.TypeFor[map[string]any]():
		m := map[string]any{}
		for c, name := range r.Columns {
			m[name] = plainOf(row[c])
		}
		to.Set(reflect.ValueOf(m))
		return nil
	default:
		if err := setField(to, row[0]); err != nil {
			return fmt.Errorf("sql: column %q: %w", r.Columns[0], err)
		}
		return nil
	}
}

func fieldOf(v reflect.Value, column string) (reflect.Value, bool) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		name := f.Name
		for _, key := range []string{"json", "sql"} {
			if tag, _, _ := strings.Cut(f.Tag.Get(key), ","); tag != "" && tag != "-" {
				name = tag
			}
		}
		if strings.EqualFold(name, column) {
			to, err := v.FieldByIndexErr(f.Index)
			return to, err == nil
		}
	}
	return reflect.Value{}, false
}

func plainOf(v abi.SQLValue) any {
	switch {
	case v.Int != nil:
		return *v.Int
	case v.Real != nil:
		return *v.Real
	case v.Text != nil:
		return *v.Text
	case v.Bytes != nil:
		return *v.Bytes
	}
	return nil
}

func setField(to reflect.Value, v abi.SQLValue) error {
	plain := plainOf(v)
	if to.Kind() == reflect.Pointer {
		if plain == nil {
			to.SetZero()
			return nil
		}
		p := reflect.New(to.Type().Elem())
		to.Set(p)
		return setField(p.Elem(), v)
	}
	if plain == nil {
		return nil
	}
	wrong := fmt.Errorf("a value of type %T does not fit into a %s", plain, to.Type())
	switch n := to.Kind(); {
	case n == reflect.Interface && to.NumMethod() == 0:
		to.Set(reflect.ValueOf(plain))
	case to.CanInt() && v.Int != nil && !to.OverflowInt(*v.Int):
		to.SetInt(*v.Int)
	case to.CanUint() && v.Int != nil && *v.Int >= 0 && !to.OverflowUint(uint64(*v.Int)):
		to.SetUint(uint64(*v.Int))
	case to.CanFloat() && v.Real != nil:
		to.SetFloat(*v.Real)
	case to.CanFloat() && v.Int != nil:
		to.SetFloat(float64(*v.Int))
	case n == reflect.Bool && v.Int != nil:
		to.SetBool(*v.Int != 0)
	case n == reflect.String && v.Text != nil:
		to.SetString(*v.Text)
	case n == reflect.Slice && to.Type().Elem().Kind() == reflect.Uint8 && v.Bytes != nil:
		to.SetBytes(*v.Bytes)
	case to.Type() == reflect.TypeFor[json.RawMessage]() && v.Text != nil:
		to.SetBytes([]byte(*v.Text))
	default:
		return wrong
	}
	return nil
}

func sqlValue(p any) (abi.SQLValue, error) {
	v := reflect.ValueOf(p)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case !v.IsValid() || v.Kind() == reflect.Pointer:
		return abi.SQLValue{}, nil
	case v.CanInt():
		n := v.Int()
		return abi.SQLValue{Int: &n}, nil
	case v.CanUint():
		n := int64(v.Uint())
		if n < 0 {
			return abi.SQLValue{}, fmt.Errorf("%d is more than SQLite's largest number", v.Uint())
		}
		return abi.SQLValue{Int: &n}, nil
	case v.CanFloat():
		f := v.Float()
		return abi.SQLValue{Real: &f}, nil
	case v.Kind() == reflect.Bool:
		var n int64
		if v.Bool() {
			n = 1
		}
		return abi.SQLValue{Int: &n}, nil
	case v.Kind() == reflect.String:
		s := v.String()
		return abi.SQLValue{Text: &s}, nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		b := v.Bytes()
		if b == nil {
			return abi.SQLValue{}, nil
		}
		return abi.SQLValue{Bytes: &b}, nil
	}
	return abi.SQLValue{}, fmt.Errorf("SQLite has no value for a %T: pass a number, a string or bytes, such as t.UnixMilli()", p)
}
