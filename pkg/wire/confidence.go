package wire

import (
	"encoding/binary"
	"math"
)

// maxConfidence is how many elements of a row are looked at.
const maxConfidence = 4096

// reduce computes the confidence from the first row of a tensor, which has row elements: first, max or mean of at most
// its first 4,096; "" is first for a row of one, else max. NaN is passed over unless there is nothing else. A tensor
// without elements, or of a datatype that is no number, gives 0.
func reduce(c cursor, datatype string, row int, how string) float32 {
	size := DatatypeSize(datatype)
	if size <= 0 {
		return 0
	}
	n := min(row, maxConfidence, (c.end-c.pos)/size)
	if n <= 0 {
		return 0
	}
	if how == "first" || how == "" && row == 1 {
		n = 1
	}
	t := tally{best: math.Inf(-1)}
	for n > 0 {
		if datatype == "FP32" && len(c.data) >= 4 { // what nearly all outputs are, read a buffer at a time
			run := min(n, len(c.data)/4)
			for data := c.data[:4*run]; len(data) > 0; data = data[4:] {
				t.add(float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
			}
			c.skip(4 * run)
			n -= run
			continue
		}
		bits, err := c.fixed(size)
		if err != nil {
			break
		}
		t.add(number(datatype, bits))
		n--
	}
	switch {
	case t.counted == 0:
		return float32(math.NaN())
	case how == "mean":
		return float32(t.sum / float64(t.counted))
	}
	return float32(t.best) // of one element, where first was asked for
}

// tally adds numbers up, NaN excepted.
type tally struct {
	best, sum float64
	counted   int
}

func (t *tally) add(v float64) {
	if math.IsNaN(v) {
		return
	}
	if v > t.best {
		t.best = v
	}
	t.sum += v
	t.counted++
}
