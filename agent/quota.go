package agent

import "fmt"

// The weights that an app may have.
const (
	MinWeight = 1
	MaxWeight = 1000
)

// Check returns an Invalid error naming the first field that cannot be.
func (a *AppInfo) Check() error {
	if err := CheckName("app", string(a.Name)); err != nil {
		return err
	}
	if a.Weight < MinWeight || a.Weight > MaxWeight {
		return Errorf(Invalid, "weight is %d; it must be between %d and %d", a.Weight, MinWeight, MaxWeight)
	}
	return a.Quota.Check()
}

// quotaField is one field of a Quota, with how its bound is said.
type quotaField struct {
	name  string
	n     int64
	words string
}

func (q Quota) fields() []quotaField {
	return []quotaField{
		{"cells", q.Cells, fmt.Sprintf("at most %d cells at once", q.Cells)},
		{"calls_per_second", q.CallsPerSecond, fmt.Sprintf("at most %d calls a second", q.CallsPerSecond)},
		{"cpu_per_day", int64(q.CPUPerDay), fmt.Sprintf("at most %s of processor time a day", q.CPUPerDay)},
		{"bytes_per_day", q.BytesPerDay, fmt.Sprintf("at most %d bytes a day", q.BytesPerDay)},
	}
}

// Check returns an Invalid error naming the first field that is negative.
func (q Quota) Check() error {
	for _, f := range q.fields() {
		if f.n < 0 {
			return Errorf(Invalid, "quota.%s is %d; it must not be negative", f.name, f.n)
		}
	}
	return nil
}

// Words says each bound in English. It returns nothing when there are none.
func (q Quota) Words() []string {
	var out []string
	for _, f := range q.fields() {
		if f.n != 0 {
			out = append(out, f.words)
		}
	}
	return out
}

// Beyond returns in words what q allows and old does not: nothing when a change from old to q only narrows.
func (q Quota) Beyond(old Quota) []string {
	var out []string
	was := old.fields()
	for i, f := range q.fields() {
		switch {
		case was[i].n == 0 || f.n != 0 && f.n <= was[i].n:
		case f.n == 0:
			out = append(out, "no bound of "+f.name)
		default:
			out = append(out, f.words)
		}
	}
	return out
}
