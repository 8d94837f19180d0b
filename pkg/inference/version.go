package inference

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Readiness is what is known of one version of a model on one endpoint.
type Readiness uint8

// The states of readiness.
const (
	Unknown  Readiness = iota // nobody has asked yet; a call may find out
	Ready                     // it serves
	NotReady                  // it does not, or the endpoint is out; never sent to
)

func (r Readiness) String() string { return [...]string{"unknown", "ready", "not ready"}[r] }

// VersionState is what the readiness table of an upstream says of one version of a model.
type VersionState struct {
	Version    string
	Unloaded   bool      // listed as unloaded, or gone, on every endpoint that is up
	Anywhere   bool      // ready on some endpoint
	Everywhere bool      // ready on every endpoint that is up
	Since      time.Time // when Everywhere or Unloaded last changed
}

// ParseVersion reads a version as clients send it: "" and "0" leave the choice to the gateway and give "", a positive
// number gives its plain decimal form. ok is false for anything else.
func ParseVersion(v string) (version string, ok bool) {
	if v == "" || v == "0" {
		return "", true
	}
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil || n < 0 || v[0] == '+' || v[0] == '-':
		return "", false
	case n == 0:
		return "", true
	case v[0] == '0':
		return strconv.FormatInt(n, 10), true
	}
	return v, true
}

// CompareVersions orders versions as the numbers they are, behind "" and before all that are no numbers.
func CompareVersions(a, b string) int {
	x, rankX := rankVersion(a)
	y, rankY := rankVersion(b)
	return cmp.Or(cmp.Compare(rankX, rankY), cmp.Compare(x, y), strings.Compare(a, b))
}

// NewerVersion reports whether a is the newer of two versions, which only a number can be: the higher one.
func NewerVersion(a, b string) bool {
	x, rankX := rankVersion(a)
	y, rankY := rankVersion(b)
	return rankX == numbered && (rankY != numbered || x > y)
}

// numbered is the rank of versions that are numbers, between those that are "" and the others.
const numbered = 1

func rankVersion(v string) (number int64, rank int) {
	if v == "" {
		return 0, 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, numbered + 1
	}
	return n, numbered
}
