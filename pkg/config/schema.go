package config

import _ "embed"

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema of File, for editors. It is made of File's fields and comments; fields that this build
// does not serve are in it, and say so.
func Schema() []byte { return schema }
