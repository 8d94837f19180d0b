package wire

import "math"

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
	best, sum, counted := math.Inf(-1), 0.0, 0
	for range n {
		bits, err := c.fixed(size)
		if err != nil {
			break
		}
		v := number(datatype, bits)
		if math.IsNaN(v) {
			continue
		}
		best, sum, counted = max(best, v), sum+v, counted+1
	}
	switch {
	case counted == 0:
		return float32(math.NaN())
	case how == "mean":
		return float32(sum / float64(counted))
	}
	return float32(best) // of one element, where first was asked for
}
