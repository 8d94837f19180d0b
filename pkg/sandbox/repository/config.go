package repository

import (
	"fmt"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Backends the sandbox stands in for.
const (
	backendONNX   = "onnxruntime"
	backendPython = "python"
	platformONNX  = "onnxruntime_onnx"
)

// complete fills in what a real server fills in, so that ModelConfig answers alike.
func complete(c *tritonpb.ModelConfig) {
	if c.Backend == "" && c.Platform == platformONNX {
		c.Backend = backendONNX
	}
	if c.Backend == backendONNX {
		c.Platform, c.Runtime = platformONNX, "model.py"
	}
	if c.DefaultModelFilename == "" {
		switch c.Backend {
		case backendONNX:
			c.DefaultModelFilename = "model.onnx"
		case backendPython:
			c.DefaultModelFilename = "model.py"
		}
	}
	if c.VersionPolicy.GetPolicyChoice() == nil {
		c.VersionPolicy = &tritonpb.ModelVersionPolicy{PolicyChoice: &tritonpb.ModelVersionPolicy_Latest_{
			Latest: &tritonpb.ModelVersionPolicy_Latest{NumVersions: 1},
		}}
	}
	if c.Optimization == nil {
		c.Optimization = &tritonpb.ModelOptimizationPolicy{}
	}
	pinned := func() *tritonpb.ModelOptimizationPolicy_PinnedMemoryBuffer {
		return &tritonpb.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
	}
	if c.Optimization.InputPinnedMemory == nil {
		c.Optimization.InputPinnedMemory = pinned()
	}
	if c.Optimization.OutputPinnedMemory == nil {
		c.Optimization.OutputPinnedMemory = pinned()
	}
	if d := c.GetDynamicBatching(); d != nil && len(d.PreferredBatchSize) == 0 {
		d.PreferredBatchSize = []int32{max(c.MaxBatchSize, 1)}
	}
	completeInstances(c)
}

func completeInstances(c *tritonpb.ModelConfig) {
	if len(c.InstanceGroup) == 0 {
		count := int32(1)
		if c.Backend == backendONNX {
			count = 2
		}
		c.InstanceGroup = []*tritonpb.ModelInstanceGroup{{Name: c.Name, Kind: tritonpb.ModelInstanceGroup_KIND_CPU, Count: count}}
		return
	}
	for i, g := range c.InstanceGroup {
		if g.Name == "" {
			g.Name = fmt.Sprintf("%s_%d", c.Name, i)
		}
		if g.Kind == tritonpb.ModelInstanceGroup_KIND_AUTO {
			g.Kind = tritonpb.ModelInstanceGroup_KIND_CPU
		}
		g.Count = max(g.Count, 1)
	}
}

const (
	maxTensors   = 256
	maxRank      = 16
	maxInstances = 64
	maxBatch     = 1 << 16
)

// validate refuses configurations the sandbox cannot keep the promises of.
func validate(c *tritonpb.ModelConfig) error {
	switch {
	case c.Backend == "":
		return fmt.Errorf("backend is missing; the sandbox knows %q and %q", backendONNX, backendPython)
	case c.MaxBatchSize < 0 || c.MaxBatchSize > maxBatch:
		return fmt.Errorf("max_batch_size: %d is out of range", c.MaxBatchSize)
	case len(c.Input) > maxTensors || len(c.Output) > maxTensors:
		return fmt.Errorf("more than %d inputs or outputs", maxTensors)
	case c.GetEnsembleScheduling() != nil:
		return fmt.Errorf("ensemble_scheduling is not served by the sandbox")
	}
	n := 0
	for _, g := range c.InstanceGroup {
		if g.Kind == tritonpb.ModelInstanceGroup_KIND_GPU {
			return fmt.Errorf("instance_group %q wants a GPU, of which the sandbox has none; write KIND_AUTO", g.Name)
		}
		n += int(min(g.Count, maxInstances+1))
	}
	if n > maxInstances {
		return fmt.Errorf("instance_group: more than %d instances", maxInstances)
	}
	seen := map[string]bool{}
	for _, in := range c.Input {
		if err := validateTensor(seen, in.Name, in.DataType, in.Dims); err != nil {
			return fmt.Errorf("input %w", err)
		}
	}
	seen = map[string]bool{}
	for _, out := range c.Output {
		if err := validateTensor(seen, out.Name, out.DataType, out.Dims); err != nil {
			return fmt.Errorf("output %w", err)
		}
	}
	return nil
}

func validateTensor(seen map[string]bool, name string, dt tritonpb.DataType, dims []int64) error {
	switch {
	case name == "" || seen[name]:
		return fmt.Errorf("%q: name is missing or given twice", name)
	case Datatype(dt) == "":
		return fmt.Errorf("%q: data_type is missing or unknown", name)
	case len(dims) == 0 || len(dims) > maxRank:
		return fmt.Errorf("%q: dims has %d entries; 1 to %d are allowed", name, len(dims), maxRank)
	}
	for _, d := range dims {
		if d < -1 || d == 0 {
			return fmt.Errorf("%q: dims %v must be positive, or -1 for any size", name, dims)
		}
	}
	seen[name] = true
	return nil
}

// datatypes are the KServe names of the configuration's element types, and their size in bytes.
var datatypes = map[tritonpb.DataType]struct {
	name string
	size int
}{
	tritonpb.DataType_TYPE_BOOL: {"BOOL", 1}, tritonpb.DataType_TYPE_UINT8: {"UINT8", 1},
	tritonpb.DataType_TYPE_UINT16: {"UINT16", 2}, tritonpb.DataType_TYPE_UINT32: {"UINT32", 4},
	tritonpb.DataType_TYPE_UINT64: {"UINT64", 8}, tritonpb.DataType_TYPE_INT8: {"INT8", 1},
	tritonpb.DataType_TYPE_INT16: {"INT16", 2}, tritonpb.DataType_TYPE_INT32: {"INT32", 4},
	tritonpb.DataType_TYPE_INT64: {"INT64", 8}, tritonpb.DataType_TYPE_FP16: {"FP16", 2},
	tritonpb.DataType_TYPE_FP32: {"FP32", 4}, tritonpb.DataType_TYPE_FP64: {"FP64", 8},
	tritonpb.DataType_TYPE_STRING: {"BYTES", 0}, tritonpb.DataType_TYPE_BF16: {"BF16", 2},
}

// Datatype gives the KServe name of an element type, "" for an unknown one.
func Datatype(t tritonpb.DataType) string { return datatypes[t].name }

// ElementSize gives the bytes of one element of a KServe datatype; 0 for BYTES, whose elements differ, and -1 for
// a datatype that does not exist.
func ElementSize(datatype string) int {
	for _, d := range datatypes {
		if d.name == datatype {
			return d.size
		}
	}
	return -1
}
