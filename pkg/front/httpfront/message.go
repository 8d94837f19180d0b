package httpfront

import (
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// appendMessage renders a message as Triton's REST does: names as in the proto, fields in its order, every number
// unquoted (protobuf's own JSON quotes 64-bit integers, which clients of this protocol take for strings), enums by
// name. Scalars, lists and maps are always there, messages and members of a oneof where they are set.
func appendMessage(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	first := true
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if (f.HasPresence() || f.ContainingOneof() != nil) && !m.Has(f) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b, _ = jsontext.AppendQuote(b, string(f.Name()))
		b = append(b, ':')
		switch v := m.Get(f); {
		case f.IsMap():
			b = appendMap(b, f, v.Map())
		case f.IsList():
			b = append(b, '[')
			for i := range v.List().Len() {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendSingle(b, f, v.List().Get(i))
			}
			b = append(b, ']')
		default:
			b = appendSingle(b, f, v)
		}
	}
	return append(b, '}')
}

// appendMap renders a map in order of key.
func appendMap(b []byte, f protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { // by length first: numbers stand in their own order
		return cmp.Or(cmp.Compare(len(a.String())*numeric(a), len(b.String())*numeric(b)), cmp.Compare(a.String(), b.String()))
	})
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, k.String())
		b = appendSingle(append(b, ':'), f.MapValue(), m.Get(k))
	}
	return append(b, '}')
}

// numeric is 1 for keys that are numbers.
func numeric(k protoreflect.MapKey) int {
	if _, text := k.Interface().(string); text {
		return 0
	}
	return 1
}

func appendSingle(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(b, v.Message())
	case protoreflect.StringKind:
		b, _ = jsontext.AppendQuote(b, v.String())
		return b
	case protoreflect.BytesKind:
		b = base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes())
		return append(b, '"')
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return append(append(append(b, '"'), e.Name()...), '"')
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return appendNumber(b, v.Float(), map[bool]int{true: 32, false: 64}[f.Kind() == protoreflect.FloatKind])
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(b, v.Uint(), 10)
	default: // signed integers of all widths
		return strconv.AppendInt(b, v.Int(), 10)
	}
}

// appendNumber renders a floating-point number; those that JSON lacks are strings, as in protobuf's JSON.
func appendNumber(b []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits)
}
