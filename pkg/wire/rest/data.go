package rest

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// list is data being turned into raw bytes.
type list struct {
	scanner
	where string
	dt    datatype
	out   []byte
	n     int64 // elements read
	want  int64 // elements of the shape; further ones are counted, not kept
	room  int   // bytes out may have, else
	full  func() error
}

// list reads data, nested or flat, from where s stands into raw bytes. Nesting is not compared with the shape, the
// number of elements is, as model servers do.
func (r *request) list(in *input, s *scanner) ([]byte, error) {
	dt, n, err := in.form()
	if err != nil {
		return nil, err
	}
	if dt.name == "FP16" || dt.name == "BF16" {
		return nil, badTensor("%s: %s has no form in JSON; send it as binary data: parameters.binary_data_size and raw bytes behind the JSON", in.where, dt.name)
	}
	room := int64(r.limit - r.size)
	if n > room/int64(max(dt.size, 4)) { // an empty BYTES element is 4 bytes
		return nil, r.tooLarge()
	}
	// Each element takes at least two bytes of text, so a shape that lies does not get more than the text is worth.
	text := int64(len(s.b) - s.at)
	size := int64(dt.size)
	if size == 0 {
		size = 8
	}
	l := list{
		scanner: *s, where: in.where, dt: dt, want: n,
		out: make([]byte, 0, min(min(n, text/2+1)*size, room)), room: int(room), full: r.tooLarge,
	}
	if err := l.read(l.element()); err != nil {
		return nil, err
	}
	s.at = l.at
	if l.n != n {
		return nil, badTensor("%s: shape %s takes %d elements and data has %d", in.where, shapeText(in.Shape), n, l.n)
	}
	return l.out, nil
}

// read walks the list and calls element at each one.
func (l *list) read(element func() error) error {
	depth, fresh := 0, true // fresh: a value may come, after [ or a comma
	for {
		switch c := l.next(); {
		case c == '[' && fresh:
			if depth++; depth > maxNesting {
				return badTensor("%s: data is nested more than %d deep", l.where, maxNesting)
			}
			l.at++
			if l.next() == ']' {
				fresh = false
			}
			continue
		case c == ']' && !fresh:
			l.at++
			if depth--; depth == 0 {
				return nil
			}
			continue
		case c == ',' && !fresh:
			l.at++
			fresh = true
			continue
		case !fresh || c == ',' || c == ']' || c == 0:
			return badTensor("%s: data, behind element %d: %s", l.where, l.n, l.found())
		}
		if err := element(); err != nil {
			return err
		}
		l.n++
		fresh = false
	}
}

// element gives the reader of one element of the datatype. It appends the element to out while the shape has room.
func (l *list) element() func() error {
	switch l.dt.name {
	case "BOOL":
		return l.boolean
	case "BYTES":
		return l.bytes
	case "FP32":
		return l.float32
	case "FP64":
		return l.float64
	case "INT8", "INT16", "INT32", "INT64":
		return l.signed
	}
	return l.unsigned
}

func (l *list) wrong(expected string) error {
	found := l.found()
	if l.next() == '"' {
		found += " in quotes; write numbers without them"
	}
	return badTensor("%s: data[%d]: %s elements are %s; %s", l.where, l.n, l.dt.name, expected, found)
}

func (l *list) outOfRange(token []byte) error {
	return badTensor("%s: data[%d]: %s does not fit %s", l.where, l.n, snippet(token), l.dt.name)
}

func (l *list) boolean() error {
	b := byte(0)
	switch {
	case l.literal("true"):
		b = 1
	case l.literal("false"):
	default:
		return l.wrong("true or false")
	}
	if l.n < l.want {
		l.out = append(l.out, b)
	}
	return nil
}

func (l *list) bytes() error {
	if l.b[l.at] != '"' {
		return l.wrong("strings")
	}
	token, ok := l.quoted()
	if !ok {
		return badTensor("%s: data[%d]: the string does not end", l.where, l.n)
	}
	if l.n >= l.want {
		return nil
	}
	start := len(l.out)
	out, err := jsontext.AppendUnquote(append(l.out, 0, 0, 0, 0), token)
	if err != nil {
		return badTensor("%s: data[%d]: the string is not valid (%v); bytes that are not UTF-8 go as binary data: parameters.binary_data_size and raw bytes behind the JSON", l.where, l.n, reason(err))
	}
	binary.LittleEndian.PutUint32(out[start:], uint32(len(out)-start-4))
	if l.out = out; len(out) > l.room {
		return l.full()
	}
	return nil
}

func (l *list) signed() error {
	token, whole, ok := l.number()
	if !ok || !whole {
		return l.wrong("whole numbers")
	}
	v, ok := int64(0), false
	if len(token) <= 18 {
		v, ok = short(token), true
		if shift := 64 - 8*l.dt.size; v<<shift>>shift != v {
			ok = false
		}
	} else if n, err := strconv.ParseInt(string(token), 10, 8*l.dt.size); err == nil {
		v, ok = n, true
	}
	if !ok {
		return l.outOfRange(token)
	}
	l.integer(uint64(v))
	return nil
}

func (l *list) unsigned() error {
	token, whole, ok := l.number()
	if !ok || !whole {
		return l.wrong("whole numbers")
	}
	v, ok := uint64(0), false
	if len(token) <= 18 {
		n := short(token)
		v, ok = uint64(n), n >= 0 && (l.dt.size == 8 || n>>(8*l.dt.size) == 0)
	} else if n, err := strconv.ParseUint(string(token), 10, 8*l.dt.size); err == nil {
		v, ok = n, true
	}
	if !ok {
		return l.outOfRange(token)
	}
	l.integer(v)
	return nil
}

// short is the value of at most 18 characters of a whole number, which cannot overflow.
func short(token []byte) int64 {
	n := int64(0)
	for _, c := range token {
		if c != '-' {
			n = n*10 + int64(c-'0')
		}
	}
	if token[0] == '-' {
		return -n
	}
	return n
}

func (l *list) integer(v uint64) {
	if l.n >= l.want {
		return
	}
	switch l.dt.size {
	case 1:
		l.out = append(l.out, byte(v))
	case 2:
		l.out = binary.LittleEndian.AppendUint16(l.out, uint16(v))
	case 4:
		l.out = binary.LittleEndian.AppendUint32(l.out, uint32(v))
	default:
		l.out = binary.LittleEndian.AppendUint64(l.out, v)
	}
}

func (l *list) float32() error {
	d, ok := l.decimal()
	if !ok {
		v, err := l.special()
		if err == nil && l.n < l.want {
			l.out = binary.LittleEndian.AppendUint32(l.out, math.Float32bits(float32(v)))
		}
		return err
	}
	v, err := d.float32()
	if err != nil {
		return l.outOfRange(d.token)
	}
	if l.n < l.want {
		l.out = binary.LittleEndian.AppendUint32(l.out, math.Float32bits(v))
	}
	return nil
}

func (l *list) float64() error {
	d, ok := l.decimal()
	if !ok {
		v, err := l.special()
		if err == nil && l.n < l.want {
			l.out = binary.LittleEndian.AppendUint64(l.out, math.Float64bits(v))
		}
		return err
	}
	v, err := d.float64()
	if err != nil {
		return l.outOfRange(d.token)
	}
	if l.n < l.want {
		l.out = binary.LittleEndian.AppendUint64(l.out, math.Float64bits(v))
	}
	return nil
}

// special reads one of the three tokens that JSON lacks.
func (l *list) special() (float64, error) {
	switch {
	case l.literal("NaN"):
		return math.NaN(), nil
	case l.literal("Infinity"):
		return math.Inf(1), nil
	case l.literal("-Infinity"):
		return math.Inf(-1), nil
	}
	return 0, l.wrong("numbers, NaN, Infinity or -Infinity")
}
