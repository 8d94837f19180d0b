package limit_test

import (
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/stage/limit"
	"github.com/model-gateway/model-gateway/pkg/stage/limit/limittest"
)

func TestBucketsInMemoryKeepTheContract(t *testing.T) {
	now := time.Unix(0, 0)
	store := limit.NewMemory(limit.MemoryOptions{Now: func() time.Time { return now }})
	limittest.Contract(t, limittest.Subject{
		Stores: []limit.Store{store},
		Pass:   func(d time.Duration) { now = now.Add(d) },
		Exact:  true,
	})
}
