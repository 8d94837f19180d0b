package limit

import "github.com/model-gateway/model-gateway/pkg/inference"

// costOf is how many tokens a call takes, at least one.
func costOf(cost inference.Cost, c *inference.Call) float64 {
	n := int64(1)
	switch cost {
	case inference.CostOne:
	case inference.CostRows:
		n = rows(c)
	case inference.CostKiB:
		n = (int64(c.Request.Len()) + 1023) / 1024
	}
	return float64(max(n, 1))
}

// rows of a PredictionRequest are counted by the length of its tensor, where the model declares a fixed size of a row.
func rows(c *inference.Call) int64 {
	if !c.Protocol.SpeaksPredict() {
		return c.Head.Rows
	}
	if c.Model == nil {
		return 1
	}
	if row := c.Model.Tensors.RowBytes(); row > 0 {
		return (int64(c.Head.TensorLen) + row - 1) / row
	}
	return 1
}
