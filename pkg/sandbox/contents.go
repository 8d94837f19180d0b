package sandbox

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// contents turns typed contents into raw bytes. datatype is the input's, "<invalid>" when it does not exist.
func contents(in *tritonpb.ModelInferRequest_InferInputTensor, datatype, model string) ([]byte, error) {
	c := in.Contents
	fields := []struct {
		n     int
		name  string
		fits  []string
		bytes func() []byte
	}{
		{len(c.BoolContents), "BOOL", []string{"BOOL"}, func() []byte { return boolBytes(c.BoolContents) }},
		{len(c.IntContents), "INT32", []string{"INT8", "INT16", "INT32"}, func() []byte { return narrow(c.IntContents, datatype) }},
		{len(c.Int64Contents), "INT64", []string{"INT64"}, func() []byte { return wide(c.Int64Contents) }},
		{len(c.UintContents), "UINT32", []string{"UINT8", "UINT16", "UINT32"}, func() []byte { return narrow(c.UintContents, datatype) }},
		{len(c.Uint64Contents), "UINT64", []string{"UINT64"}, func() []byte { return wide(c.Uint64Contents) }},
		{len(c.Fp32Contents), "FP32", []string{"FP32"}, func() []byte { return float32Bytes(c.Fp32Contents) }},
		{len(c.Fp64Contents), "FP64", []string{"FP64"}, func() []byte { return float64Bytes(c.Fp64Contents) }},
		{len(c.BytesContents), "BYTES", []string{"BYTES"}, func() []byte { return stringBytes(c.BytesContents) }},
	}
	var out []byte
	for _, f := range fields {
		if f.n == 0 {
			continue
		}
		if !slices.Contains(f.fits, datatype) {
			return nil, invalid("unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', expected datatype '%s'", in.Name, model, f.name, datatype)
		}
		out = f.bytes()
	}
	return out, nil
}

func boolBytes(vs []bool) []byte {
	b := make([]byte, len(vs))
	for i, v := range vs {
		if v {
			b[i] = 1
		}
	}
	return b
}

// narrow writes numbers in the size of datatype.
func narrow[T int32 | uint32](vs []T, datatype string) []byte {
	var b []byte
	for _, v := range vs {
		switch datatype {
		case "INT8", "UINT8":
			b = append(b, byte(v))
		case "INT16", "UINT16":
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		default:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	return b
}

func wide[T int64 | uint64](vs []T) []byte {
	b := make([]byte, 0, 8*len(vs))
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func float32Bytes(vs []float32) []byte {
	b := make([]byte, 0, 4*len(vs))
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func float64Bytes(vs []float64) []byte {
	b := make([]byte, 0, 8*len(vs))
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

func stringBytes(vs [][]byte) []byte {
	var b []byte
	for _, v := range vs {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b
}

func microseconds(us int64) time.Duration {
	return time.Duration(min(max(us, 0), math.MaxInt64/1000)) * time.Microsecond
}
