package config

import "strings"

// unserved is the one table of what the schema names and this build does not serve: fields, and values as
// field=value. Whoever begins to serve one deletes its line here; until then it is refused where it is written.
// [] stands for every entry of a list, * for every name.
var unserved = set(
	"telemetry.otlp",
	"telemetry.access_log",
)

// Unserved lists the fields, and the values as field=value, that the schema names and this build refuses.
func Unserved() []string { return sortedKeys(unserved) }

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// unservedValues lists the values of a field that are refused.
func unservedValues(field string) []string {
	var values []string
	for _, name := range sortedKeys(unserved) {
		if value, ok := strings.CutPrefix(name, field+"="); ok {
			values = append(values, value)
		}
	}
	return values
}
