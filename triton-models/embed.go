// Package tritonmodels carries the model repository of this folder inside a binary, so that the sandbox and the tests need no
// files beside them. FS is laid out as Triton reads it: MODEL/config.pbtxt, MODEL/VERSION/…; MODEL/golden.json has inputs
// with the answers that onnxruntime gave. README.md describes the models and the form of the goldens.
package tritonmodels

import "embed"

// FS is the model repository, with the models at its root.
//
//go:embed cnn echo echo_fp32 fraud seqsum text tokens
var FS embed.FS
