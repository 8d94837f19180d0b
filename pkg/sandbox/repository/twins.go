package repository

import (
	"fmt"
	"maps"
	"slices"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// twins are the python models that have a twin in Go, by the model's name. A twin computes what the model.py of that
// name in triton-models/ computes, and reads the same weights.
var twins = map[string]func(src *source, version int64) (Backend, error){
	"echo":      newEcho,
	"echo_fp32": newEchoFP32,
	"seqsum":    newSeqSum,
	"text":      newText,
	"tokens":    newTokens,
}

func newTwin(src *source, c *tritonpb.ModelConfig, version int64) (Backend, error) {
	make, ok := twins[c.Name]
	if !ok {
		return nil, fmt.Errorf("the sandbox does not run python and has no twin of model %q; it has twins of %q", c.Name, slices.Sorted(maps.Keys(twins)))
	}
	return make(src, version)
}
