package inference

import (
	"slices"
	"strconv"
	"testing"
)

func TestAVersionIsReadAsItsPlainNumberOrNotAtAll(t *testing.T) {
	for sent, want := range map[string]string{"": "", "0": "", "00": "", "1": "1", "02": "2", "9223372036854775807": "9223372036854775807"} {
		if got, ok := ParseVersion(sent); got != want || !ok {
			t.Errorf("%q is read as %q, %v", sent, got, ok)
		}
	}
	for _, sent := range []string{"-1", "-0", "+2", "2.0", "latest", " 1", "1_0", "0x1", "9223372036854775808"} {
		if got, ok := ParseVersion(sent); ok {
			t.Errorf("%q is read as %q", sent, got)
		}
	}
}

func FuzzAVersionThatIsReadIsReadAsItself(f *testing.F) {
	f.Add("007")
	f.Add("-0")
	f.Fuzz(func(t *testing.T, sent string) {
		v, ok := ParseVersion(sent)
		if !ok || v == "" {
			return
		}
		if again, ok := ParseVersion(v); again != v || !ok {
			t.Errorf("%q is read as %q, and that as %q", sent, v, again)
		}
		if n, err := strconv.ParseUint(v, 10, 63); err != nil || n == 0 {
			t.Errorf("%q is read as %q", sent, v)
		}
	})
}

func TestVersionsAreOrderedAsNumbersAndOnlyNumbersAreNewer(t *testing.T) {
	got := []string{"latest", "10", "", "9", "a"}
	slices.SortFunc(got, CompareVersions)
	if want := []string{"", "9", "10", "a", "latest"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"10", "9", true}, {"9", "10", false}, {"9", "9", false}, {"1", "", true}, {"1", "latest", true}, {"latest", "1", false}, {"latest", "", false}} {
		if NewerVersion(tt.a, tt.b) != tt.want {
			t.Errorf("%q newer than %q: %v", tt.a, tt.b, !tt.want)
		}
	}
}
