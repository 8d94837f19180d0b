package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write schema.json and goldens anew")

// generateSchema makes the schema of File from its fields, tags and comments.
func generateSchema(t *testing.T) []byte {
	t.Helper()
	r := &jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Mapper: scalarSchema,
	}
	if err := r.AddGoComments("github.com/model-gateway/model-gateway/pkg/config", "./", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	for name, comment := range r.CommentMap {
		r.CommentMap[name] = strings.Join(strings.Fields(comment), " ")
	}
	s := r.Reflect(&File{})
	s.Title = "model-gateway configuration"
	s.Description = "The one file that says what the gateway serves and how."
	describe(s, "")
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// scalarSchema is the schema of the types that have a form of their own.
func scalarSchema(t reflect.Type) *jsonschema.Schema {
	text := func(pattern string, examples ...any) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: pattern, Examples: examples}
	}
	switch t {
	case reflect.TypeFor[Duration]():
		return text(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`, "500ms", "30s")
	case reflect.TypeFor[Size]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			text(`^[0-9]+ *([KMG]iB)?$`, "64MiB"), {Type: "integer", Minimum: json.Number("1")},
		}}
	case reflect.TypeFor[Percent]():
		return text(`^[0-9]+(\.[0-9]+)?%$`, "5%")
	case reflect.TypeFor[Rate]():
		return text(`^[0-9]+(\.[0-9]+)?/(s|min|h)$`, "20/s")
	case reflect.TypeFor[Cost]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Const: 1}, {Type: "string", Enum: []any{"1", "rows", "KiB"}},
		}}
	case reflect.TypeFor[SecretFile]():
		file := jsonschema.NewProperties()
		file.Set("from_file", &jsonschema.Schema{Type: "string", Description: "from_file is the file with the value; white space around it does not count."})
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Type: "string"}, {Type: "object", Properties: file, AdditionalProperties: jsonschema.FalseSchema, Required: []string{"from_file"}},
		}}
	case reflect.TypeFor[Address]():
		return text(`^(off|.*:[0-9]{1,5})$`)
	case reflect.TypeFor[Version]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: json.Number("1")}, text(`^[1-9][0-9]*$`),
		}}
	case reflect.TypeFor[OneOrMany]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}},
		}}
	}
	return nil
}

// restarts are the sections and fields that NeedsRestart names.
var restarts = set("listen", "lua.dir", "redis.address", "redis.mode", "redis.master", "redis.prefix", "redis.user", "redis.tls", "redis.timeout")

// describe marks what this build does not serve, and what cannot change while it runs.
func describe(s *jsonschema.Schema, pattern string) {
	if unserved[pattern] {
		s.Description = "Not served by this version: refused where it is written. " + s.Description
		mark(s, "x-served", false)
	}
	if values := unservedValues(pattern); len(values) > 0 {
		s.Description += " Not served by this version: `" + strings.Join(values, "`, `") + "`."
	}
	if restarts[pattern] {
		mark(s, "x-restart", true)
	}
	if s.Properties != nil {
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			// Go's comments begin with Go's name of the field; editors show the file's.
			if first, rest, ok := strings.Cut(p.Value.Description, " "); ok && strings.EqualFold(first, strings.ReplaceAll(p.Key, "_", "")) {
				p.Value.Description = p.Key + " " + rest
			}
			describe(p.Value, join(pattern, p.Key))
		}
	}
	if s.Items != nil {
		describe(s.Items, pattern+"[]")
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Properties != nil {
		describe(s.AdditionalProperties, join(pattern, "*"))
	}
}

func mark(s *jsonschema.Schema, name string, value any) {
	if s.Extras == nil {
		s.Extras = make(map[string]any)
	}
	s.Extras[name] = value
}

func TestTheSchemaForEditorsIsCurrent(t *testing.T) {
	want := generateSchema(t)
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(Schema(), want) {
		t.Fatal("schema.json is not what File says; run go test ./pkg/config -run SchemaForEditors -update")
	}
}

// compiledSchema gives what judges a file's text by schema.json.
func compiledSchema(t *testing.T) func(source []byte) error {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(source []byte) error {
		body, bad := parseYAML(source)
		if bad != nil {
			return Errors{*bad}
		}
		v, err := validator.UnmarshalJSON(strings.NewReader(asJSON(newReader("", source), body)))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

// asJSON writes a YAML tree as JSON.
func asJSON(r *reader, n ast.Node) string {
	quote := func(s string) string {
		b, _ := json.Marshal(s)
		return string(b)
	}
	if text, ok := colonText(n); ok {
		return quote(text)
	}
	var parts []string
	switch v := r.open(n, field{}).(type) {
	case ast.MapNode:
		pairs, _ := r.pairs(v.(ast.Node), field{}, 0)
		for _, p := range pairs {
			parts = append(parts, quote(p.name)+":"+asJSON(r, p.value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case *ast.SequenceNode:
		for _, e := range v.Values {
			parts = append(parts, asJSON(r, e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case ast.ScalarNode:
		text, isText := scalarText(v)
		if isText {
			return quote(text)
		}
		return text
	default:
		return "null"
	}
}

func TestExamplesValidateAgainstTheSchema(t *testing.T) {
	validate := compiledSchema(t)
	for _, path := range examples(t) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(source); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, bad := range []string{
		"modls: []", "version: 2", "listen: {max_message: big}", "models: [{name: a, targets: {v: {version: 0}}}]", "upstreams: {t: {kind: other}}",
		"control: [everything]", "defaults: {timeout: {max: 60}}",
	} {
		if validate([]byte(bad)) == nil {
			t.Errorf("the schema accepts %s", bad)
		}
	}
}

// examples are all files that the schema must take: served ones, and the one that names everything.
func examples(t *testing.T) []string {
	t.Helper()
	served, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(served) == 0 {
		t.Fatal("no examples", err)
	}
	return append(served, "testdata/whole.yaml")
}

func TestWhatIsNotServedSaysSoInTheSchema(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	for _, name := range Unserved() {
		pattern, value, isValue := strings.Cut(name, "=")
		at := root
		for part := range strings.SplitSeq(strings.ReplaceAll(pattern, "[]", ".[]"), ".") {
			switch part {
			case "[]":
				at, _ = at["items"].(map[string]any)
			case "*":
				at, _ = at["additionalProperties"].(map[string]any)
			default:
				props, _ := at["properties"].(map[string]any)
				at, _ = props[part].(map[string]any)
			}
			if at == nil {
				t.Fatalf("the table names %s, which the schema does not have", name)
			}
		}
		text, _ := at["description"].(string)
		if !strings.Contains(text, "Not served by this version") || isValue && !strings.Contains(text, "`"+value+"`") {
			t.Errorf("%s: the schema says %q", name, text)
		}
		if isValue {
			if choices, _ := at["enum"].([]any); !slices.Contains(choices, any(value)) {
				t.Errorf("the table names %s, which is no choice", name)
			}
		}
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	var walk func(path string, node map[string]any)
	walk = func(path string, node map[string]any) {
		props, _ := node["properties"].(map[string]any)
		for name, p := range props {
			if p, ok := p.(map[string]any); ok {
				if p["description"] == nil {
					t.Errorf("%s.%s has no description", path, name)
				}
				walk(path+"."+name, p)
			}
		}
		for _, inner := range []string{"items", "additionalProperties"} {
			if p, ok := node[inner].(map[string]any); ok {
				walk(path+"[]", p)
			}
		}
	}
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	walk("", root)
}
