package triton

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func (s *seat) inferInStream(context.Context, *inference.Call) error {
	return fault.New(fault.NotServed, "streams are not served yet")
}
