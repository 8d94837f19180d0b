package inference

// DatatypeSize is the size in bytes of an element of a KServe datatype: 0 for BYTES, whose elements carry their own
// length, and -1 for a name that is no datatype.
func DatatypeSize(name string) int {
	switch name {
	case "BOOL", "INT8", "UINT8":
		return 1
	case "INT16", "UINT16", "FP16", "BF16":
		return 2
	case "INT32", "UINT32", "FP32":
		return 4
	case "INT64", "UINT64", "FP64":
		return 8
	case "BYTES":
		return 0
	}
	return -1
}

// RowBytes is how many bytes of a PredictionRequest's tensor one row takes, all inputs together; 0 where that is not fixed: no
// declared tensors, BYTES, a variable dimension behind the batch, or inputs whose batches differ.
func (t *Tensors) RowBytes() int64 {
	if t == nil || len(t.Inputs) == 0 {
		return 0
	}
	const most = 1 << 31 // no message is larger
	var sum int64
	for _, in := range t.Inputs {
		if len(in.Shape) == 0 || in.Shape[0] != t.Inputs[0].Shape[0] {
			return 0
		}
		bytes := int64(DatatypeSize(in.Datatype))
		for _, d := range in.Shape[1:] {
			if d <= 0 || d > most || bytes <= 0 || bytes > most {
				return 0
			}
			bytes *= d
		}
		if bytes <= 0 {
			return 0
		}
		sum += bytes
	}
	return sum
}

// Answering gives the output that becomes output_tensor: Output, else the first floating-point one, else the first. The
// zero Tensor stands for one of which nothing is known.
func (t *Tensors) Answering() Tensor {
	for _, o := range t.Outputs {
		if t.Output != "" && o.Name == t.Output || t.Output == "" && floating(o.Datatype) {
			return o
		}
	}
	if t.Output == "" && len(t.Outputs) > 0 {
		return t.Outputs[0]
	}
	return Tensor{}
}

func floating(datatype string) bool {
	switch datatype {
	case "FP16", "BF16", "FP32", "FP64":
		return true
	}
	return false
}
