package repository

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
)

// text scores texts: words are hashed into buckets that have weights.
type text struct {
	buckets uint32
	bias    float64
	weights map[uint32]float64
}

func newText(src *source, version int64) (Backend, error) {
	name := strconv.FormatInt(version, 10) + "/weights.json"
	b, err := src.read(name, maxConfig)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Buckets uint32
		Bias    float64
		Weights map[uint32]float64
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if doc.Buckets == 0 {
		return nil, fmt.Errorf("%s: buckets must be positive", name)
	}
	return &text{doc.Buckets, doc.Bias, doc.Weights}, nil
}

// Execute implements Backend.
func (t *text) Execute(batch []*Request) {
	for _, r := range batch {
		in := r.Input("TEXT")
		if in == nil {
			r.Send(nil, missingInput("TEXT"), true)
			continue
		}
		var scores []float32
		for _, s := range Strings(in.Data) {
			scores = append(scores, t.score(s))
		}
		r.Send([]Tensor{{"SCORE", "FP32", []int64{int64(len(scores)), 1}, floatBytes(scores)}}, nil, true)
	}
}

func (t *text) score(s []byte) float32 {
	var sum float64
	words := 0
	for i := 0; i < len(s); {
		if !inWord(s[i]) {
			i++
			continue
		}
		var sumOfWord uint32
		var c [1]byte
		for ; i < len(s) && inWord(s[i]); i++ {
			c[0] = s[i]
			if 'A' <= c[0] && c[0] <= 'Z' {
				c[0] += 'a' - 'A'
			}
			sumOfWord = crc32.Update(sumOfWord, crc32.IEEETable, c[:])
		}
		sum += t.weights[sumOfWord%t.buckets]
		words++
	}
	z := t.bias
	if words > 0 {
		z += sum / math.Sqrt(float64(words))
	}
	return float32(1 / (1 + math.Exp(-z)))
}

func inWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c >= 0x80
}
