package main

import "testing"

func TestDollars(t *testing.T) {
	for in, want := range map[string]int64{"5": 5_000_000, "$0.25": 250_000, ".5": 500_000, "3.": 3_000_000, "0.000001": 1, "999999999999.999999": 999_999_999_999_999_999} {
		if got, err := dollars("spend", in); err != nil || got != want {
			t.Errorf("%q is %d, want %d: %v", in, got, want, err)
		}
	}
	for _, bad := range []string{"", "$", ".", "-0.5", "-1", "+1", "1.-5", "1.+5", "0.0000001", "1000000000000", "1e3", "1_000", "five"} {
		if got, err := dollars("spend", bad); err == nil {
			t.Errorf("%q is %d", bad, got)
		}
	}
}
