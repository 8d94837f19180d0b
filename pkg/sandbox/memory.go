package sandbox

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// The sandbox has no shared memory: no region can be registered, so there is none to be found.

// SystemSharedMemoryStatus lists no regions; a named one is not found.
func (s *Server) SystemSharedMemoryStatus(_ context.Context, req *tritonpb.SystemSharedMemoryStatusRequest) (*tritonpb.SystemSharedMemoryStatusResponse, error) {
	if req.Name != "" {
		return nil, status.Errorf(codes.NotFound, "Unable to find system shared memory region: '%s'", req.Name)
	}
	return &tritonpb.SystemSharedMemoryStatusResponse{}, nil
}

// SystemSharedMemoryRegister refuses as for a key that does not exist.
func (s *Server) SystemSharedMemoryRegister(_ context.Context, req *tritonpb.SystemSharedMemoryRegisterRequest) (*tritonpb.SystemSharedMemoryRegisterResponse, error) {
	return nil, status.Errorf(codes.Internal, "Unable to open shared memory region: '%s'", req.Key)
}

// SystemSharedMemoryUnregister has nothing to do, which is no error.
func (s *Server) SystemSharedMemoryUnregister(context.Context, *tritonpb.SystemSharedMemoryUnregisterRequest) (*tritonpb.SystemSharedMemoryUnregisterResponse, error) {
	return &tritonpb.SystemSharedMemoryUnregisterResponse{}, nil
}

// CudaSharedMemoryStatus lists no regions; a named one is not found.
func (s *Server) CudaSharedMemoryStatus(_ context.Context, req *tritonpb.CudaSharedMemoryStatusRequest) (*tritonpb.CudaSharedMemoryStatusResponse, error) {
	if req.Name != "" {
		return nil, status.Errorf(codes.NotFound, "Unable to find cuda shared memory region: '%s'", req.Name)
	}
	return &tritonpb.CudaSharedMemoryStatusResponse{}, nil
}

// CudaSharedMemoryRegister refuses as a server without a GPU does.
func (s *Server) CudaSharedMemoryRegister(context.Context, *tritonpb.CudaSharedMemoryRegisterRequest) (*tritonpb.CudaSharedMemoryRegisterResponse, error) {
	return nil, invalid("failed to register shared memory region: invalid args")
}

// CudaSharedMemoryUnregister has nothing to do, which is no error.
func (s *Server) CudaSharedMemoryUnregister(context.Context, *tritonpb.CudaSharedMemoryUnregisterRequest) (*tritonpb.CudaSharedMemoryUnregisterResponse, error) {
	return &tritonpb.CudaSharedMemoryUnregisterResponse{}, nil
}
