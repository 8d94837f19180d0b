package config

import (
	"maps"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// oneOf words a choice: a, b or c.
func oneOf(choices []string) string {
	switch len(choices) {
	case 0:
		return "nothing"
	case 1:
		return choices[0]
	}
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// few keeps a list of names short enough for a message.
func few(names []string) []string {
	const most = 10
	if len(names) <= most {
		return names
	}
	return append(slices.Clone(names[:most]), "…")
}

// didYouMean words the known name that a mistyped one is nearest to, or nothing where none is near.
func didYouMean(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	var near string
	best := 3
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(strings.ToLower(name), k, best); d < best && d < (len(k)+1)/2+1 && d < len(name) {
			near, best = k, d
		}
	}
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// distance counts the letters to insert, delete, change or swap to make b of a; limit when it is that or more.
func distance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); max(d, -d) >= limit {
		return limit
	}
	before, above := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range above {
		above[j] = j
	}
	for i := range x {
		row := make([]int, len(y)+1)
		row[0] = i + 1
		for j := range y {
			change := above[j]
			if x[i] != y[j] {
				change++
			}
			row[j+1] = min(change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return min(above[len(y)], limit)
}
