package httpfront

import (
	"net/http"
	"strconv"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	"github.com/model-gateway/model-gateway/pkg/wire/rest"
)

// infer answers POST /v2/models/{model}[/versions/{version}]/infer.
func (x *exchange) infer() error {
	c := x.newCall(inference.Infer, inference.HTTPKServe)
	ctx, cancel, err := x.headers()
	defer cancel()
	if err != nil {
		return x.refuse(ctx, err)
	}
	var wanted rest.Wanted
	x.read = func() (err error) {
		wanted, err = x.readInfer(c)
		return err
	}
	c.Source = x
	if err := x.front.Pipeline.Do(ctx, c); err != nil {
		return err
	}
	if c.Answer.Empty() {
		return fault.New(fault.Internal, "the model gave no answer; it may be one that answers any number of times, which only streams can carry")
	}
	body, headLen, err := rest.Answer(c.Answer, wanted)
	if err != nil {
		return err
	}
	contentType := jsonType
	if headLen >= 0 {
		contentType = binaryType
		x.w.Header().Set(rest.HeadLength, strconv.Itoa(headLen))
	}
	x.write(http.StatusOK, contentType, body, true)
	return nil
}

func (x *exchange) readInfer(c *inference.Call) (rest.Wanted, error) {
	headLen, err := headLength(x.r.Header.Get(rest.HeadLength))
	if err != nil {
		return rest.Wanted{}, err
	}
	body, err := x.body()
	if err != nil {
		return rest.Wanted{}, err
	}
	c.Start = time.Now()
	var wanted rest.Wanted
	if c.Request, wanted, err = rest.Request(body, headLen, x.vars["model"], x.vars["version"], x.front.MaxMessage); err != nil {
		return rest.Wanted{}, err
	}
	c.Head, err = wire.PeekInfer(c.Request)
	return wanted, err
}

// headLength reads Inference-Header-Content-Length, -1 when absent.
func headLength(text string) (int, error) {
	if text == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fault.New(fault.InvalidArgument, "%s must be the length in bytes of the JSON in front of the raw tensors", rest.HeadLength)
	}
	return n, nil
}

// generate answers for an extension of Triton that is not served.
func generate(*exchange) error {
	return fault.New(fault.NotServed, "generate is not served by the gateway; use POST /v2/models/{model}/infer, or gRPC ModelStreamInfer for models that answer in parts")
}
