package rest

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/model-gateway/model-gateway/pkg/fault"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// appendParameters renders parameters in order of name, and binary_data_size where size is not negative.
func appendParameters(b []byte, all map[string]*tritonpb.InferParameter, size int) []byte {
	b = append(b, '{')
	if size >= 0 {
		b = strconv.AppendInt(append(b, `"binary_data_size":`...), int64(size), 10)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "binary_data_size" && size >= 0 {
			continue // ours is the one that is true of this body
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(appendText(b, name), ':')
		switch v := all[name].GetParameterChoice().(type) {
		case *tritonpb.InferParameter_BoolParam:
			b = strconv.AppendBool(b, v.BoolParam)
		case *tritonpb.InferParameter_Int64Param:
			b = strconv.AppendInt(b, v.Int64Param, 10)
		case *tritonpb.InferParameter_Uint64Param:
			b = strconv.AppendUint(b, v.Uint64Param, 10)
		case *tritonpb.InferParameter_DoubleParam:
			b = appendFloat(b, v.DoubleParam, 64)
		case *tritonpb.InferParameter_StringParam:
			b = appendText(b, v.StringParam)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

// appendData renders the elements of a tensor, flat and separated by commas. raw has been checked.
func appendData(b []byte, output string, dt datatype, raw []byte) ([]byte, error) {
	if dt.size == 0 {
		return appendStrings(b, output, raw)
	}
	le := binary.LittleEndian
	for i := 0; i < len(raw); i += dt.size {
		if i > 0 {
			b = append(b, ',')
		}
		e := raw[i : i+dt.size]
		switch dt.name {
		case "BOOL":
			b = strconv.AppendBool(b, e[0] != 0)
		case "INT8":
			b = strconv.AppendInt(b, int64(int8(e[0])), 10)
		case "INT16":
			b = strconv.AppendInt(b, int64(int16(le.Uint16(e))), 10)
		case "INT32":
			b = strconv.AppendInt(b, int64(int32(le.Uint32(e))), 10)
		case "INT64":
			b = strconv.AppendInt(b, int64(le.Uint64(e)), 10)
		case "UINT8":
			b = strconv.AppendUint(b, uint64(e[0]), 10)
		case "UINT16":
			b = strconv.AppendUint(b, uint64(le.Uint16(e)), 10)
		case "UINT32":
			b = strconv.AppendUint(b, uint64(le.Uint32(e)), 10)
		case "UINT64":
			b = strconv.AppendUint(b, le.Uint64(e), 10)
		case "FP16":
			b = appendFloat(b, float64(half(le.Uint16(e))), 32)
		case "BF16":
			b = appendFloat(b, float64(math.Float32frombits(uint32(le.Uint16(e))<<16)), 32)
		case "FP32":
			b = appendFloat(b, float64(math.Float32frombits(le.Uint32(e))), 32)
		case "FP64":
			b = appendFloat(b, math.Float64frombits(le.Uint64(e)), 64)
		}
	}
	return b, nil
}

func appendStrings(b []byte, output string, raw []byte) ([]byte, error) {
	for i := 0; len(raw) > 0; i++ {
		end := 4 + int(binary.LittleEndian.Uint32(raw))
		e := raw[4:end]
		raw = raw[end:]
		if !utf8.Valid(e) {
			return nil, fault.New(fault.BadTensor, `output "%s": element %d is not UTF-8, so JSON cannot hold it; ask for the output with parameters {"binary_data": true}`, snippet([]byte(output)), i)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, e)
	}
	return b, nil
}

// appendFloat prints the shortest number that reads back as v. Whole numbers keep a ".0", so that
// readers without types see a floating-point number, as they do with Triton.
func appendFloat(b []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	}
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e16) {
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'f', -1, bits)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

// half is the value of an IEEE 754 half, which every float32 holds exactly.
func half(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0: // zero and subnormals: frac × 2^-24
		v := float32(frac) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(v))
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// packContents turns typed contents into raw bytes.
func packContents(out *tritonpb.ModelInferResponse_InferOutputTensor) ([]byte, error) {
	c, le := out.Contents, binary.LittleEndian
	var b []byte
	small := func(size int, v uint64) {
		switch size {
		case 1:
			b = append(b, byte(v))
		case 2:
			b = le.AppendUint16(b, uint16(v))
		default:
			b = le.AppendUint32(b, uint32(v))
		}
	}
	size := datatypes[out.Datatype].size
	switch out.Datatype {
	case "BOOL":
		for _, v := range c.BoolContents {
			b = append(b, byte(b2i(v)))
		}
	case "INT8", "INT16", "INT32":
		for _, v := range c.IntContents {
			small(size, uint64(v))
		}
	case "UINT8", "UINT16", "UINT32":
		for _, v := range c.UintContents {
			small(size, uint64(v))
		}
	case "INT64":
		for _, v := range c.Int64Contents {
			b = le.AppendUint64(b, uint64(v))
		}
	case "UINT64":
		for _, v := range c.Uint64Contents {
			b = le.AppendUint64(b, v)
		}
	case "FP32":
		for _, v := range c.Fp32Contents {
			b = le.AppendUint32(b, math.Float32bits(v))
		}
	case "FP64":
		for _, v := range c.Fp64Contents {
			b = le.AppendUint64(b, math.Float64bits(v))
		}
	case "BYTES":
		for _, v := range c.BytesContents {
			b = append(le.AppendUint32(b, uint32(len(v))), v...)
		}
	default:
		return nil, brokenOutput(out, "has typed contents, which %q does not have", out.Datatype)
	}
	return b, nil
}
