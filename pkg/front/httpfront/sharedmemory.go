package httpfront

import (
	"encoding/base64"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// sharedMemory is one of the two kinds of shared memory, which differ in their messages only.
type sharedMemory struct {
	path       string
	status     func(*exchange) error
	register   func(*exchange) error
	unregister func(*exchange) error
}

var systemMemory = sharedMemory{
	path: "/v2/systemsharedmemory",
	status: func(x *exchange) error {
		return x.answer("SystemSharedMemoryStatus", &tritonpb.SystemSharedMemoryStatusRequest{Name: x.vars["region"]}, nil, func(m proto.Message) ([]byte, error) {
			r, err := as[*tritonpb.SystemSharedMemoryStatusResponse](m)
			return regions(r.GetRegions()), err
		})
	},
	register: func(x *exchange) error {
		request := &tritonpb.SystemSharedMemoryRegisterRequest{Name: x.vars["region"]}
		return x.answer("SystemSharedMemoryRegister", request, func(body []byte) (err error) {
			var v struct {
				Key      *string        `json:"key"`
				Offset   jsontext.Value `json:"offset"`
				ByteSize jsontext.Value `json:"byte_size"`
			}
			if err := parse(body, &v); err != nil {
				return err
			}
			if v.Key == nil || v.ByteSize == nil {
				return fault.New(fault.InvalidArgument, "registering a region takes key and byte_size")
			}
			request.Key = *v.Key
			if v.Offset != nil {
				if request.Offset, err = unsigned("offset", v.Offset); err != nil {
					return err
				}
			}
			request.ByteSize, err = unsigned("byte_size", v.ByteSize)
			return err
		}, nothing)
	},
	unregister: func(x *exchange) error {
		return x.answer("SystemSharedMemoryUnregister", &tritonpb.SystemSharedMemoryUnregisterRequest{Name: x.vars["region"]}, nil, nothing)
	},
}

var cudaMemory = sharedMemory{
	path: "/v2/cudasharedmemory",
	status: func(x *exchange) error {
		return x.answer("CudaSharedMemoryStatus", &tritonpb.CudaSharedMemoryStatusRequest{Name: x.vars["region"]}, nil, func(m proto.Message) ([]byte, error) {
			r, err := as[*tritonpb.CudaSharedMemoryStatusResponse](m)
			return regions(r.GetRegions()), err
		})
	},
	register: func(x *exchange) error {
		request := &tritonpb.CudaSharedMemoryRegisterRequest{Name: x.vars["region"]}
		return x.answer("CudaSharedMemoryRegister", request, func(body []byte) (err error) {
			var v struct {
				RawHandle struct {
					B64 string `json:"b64"`
				} `json:"raw_handle"`
				DeviceID jsontext.Value `json:"device_id"`
				ByteSize jsontext.Value `json:"byte_size"`
			}
			if err := parse(body, &v); err != nil {
				return err
			}
			if request.RawHandle, err = base64.StdEncoding.DecodeString(v.RawHandle.B64); err != nil || len(request.RawHandle) == 0 || v.DeviceID == nil || v.ByteSize == nil {
				return fault.New(fault.InvalidArgument, "registering a device region takes raw_handle {b64}, device_id and byte_size")
			}
			if request.DeviceId, err = signed("device_id", v.DeviceID); err != nil {
				return err
			}
			request.ByteSize, err = unsigned("byte_size", v.ByteSize)
			return err
		}, nothing)
	},
	unregister: func(x *exchange) error {
		return x.answer("CudaSharedMemoryUnregister", &tritonpb.CudaSharedMemoryUnregisterRequest{Name: x.vars["region"]}, nil, nothing)
	},
}

// regions renders regions as a list, in order of name.
func regions[R proto.Message](all map[string]R) []byte {
	b := []byte{'['}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMessage(b, all[name].ProtoReflect())
	}
	return append(b, ']')
}
