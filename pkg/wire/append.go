package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The functions below append encoded fields to dst for inference.Frame.Append. Put behind a message they override
// what it says, since in protobuf the last value of a field and the last entry of a map win.

// AppendTarget overrides model_name and model_version of a ModelInferRequest; "" leaves a field alone.
func AppendTarget(dst []byte, model, version string) []byte {
	dst = room(dst, len(model)+len(version)+8)
	if model != "" {
		dst = appendText(dst, 1, model)
	}
	if version != "" {
		dst = appendText(dst, 2, version)
	}
	return dst
}

// AppendID overrides the id of a ModelInferRequest; "" takes it away.
func AppendID(dst []byte, id string) []byte {
	return appendText(room(dst, len(id)+4), 3, id)
}

// AppendEmptyFinal asks a decoupled model for an empty final answer, so that the end of its answers can be seen.
// It fits a ModelInferRequest, and overrides what the message itself says of it.
func AppendEmptyFinal(dst []byte) []byte {
	return appendParam(room(dst, len(paramEmptyFinal)+8), paramEmptyFinal, boolParam, 1, "")
}

// AppendPriority sets the priority of a ModelInferRequest in the server's queue, 1 first, and overrides what the message itself
// says of it, which may be of any type.
func AppendPriority(dst []byte, level uint64) []byte {
	return appendParam(room(dst, len(paramPriority)+16), paramPriority, int64Param, level, "")
}

// AppendAnswerModel overrides model_name of a ModelInferResponse.
func AppendAnswerModel(dst []byte, model string) []byte {
	return appendText(room(dst, len(model)+4), 1, model)
}

// AppendAnswerID overrides the id of a ModelInferResponse; "" takes it away.
func AppendAnswerID(dst []byte, id string) []byte {
	return appendText(room(dst, len(id)+4), 3, id)
}

// AppendStreamAnswer overrides id and model_name of the answer inside a ModelStreamInferResponse: nested messages
// merge. An id of "" takes it away; a model of "" leaves the name alone.
func AppendStreamAnswer(dst []byte, id, model string) []byte {
	n := textSize(id)
	if model != "" {
		n += textSize(model)
	}
	dst = room(dst, n+6)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(n))
	if model != "" {
		dst = appendText(dst, 1, model)
	}
	return appendText(dst, 3, id)
}

// room makes dst able to take n more bytes without a second allocation.
func room(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n), dst...)
}

// appendText appends a string field whose number is below 16; it writes "" too.
func appendText(dst []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

// textSize is how many bytes appendText appends.
func textSize(s string) int { return 1 + protowire.SizeBytes(len(s)) }

// appendParam appends an entry of parameters: field 4 in requests and answers alike. Its value is s for stringParam,
// else v.
func appendParam(dst []byte, key string, member protowire.Number, v uint64, s string) []byte {
	value := 1 + protowire.SizeVarint(v)
	if member == stringParam {
		value = textSize(s)
	}
	dst = protowire.AppendTag(dst, 4, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(textSize(key)+1+protowire.SizeBytes(value)))
	dst = appendText(dst, 1, key)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(value))
	if member == stringParam {
		return appendText(dst, member, s)
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, member, protowire.VarintType), v)
}
