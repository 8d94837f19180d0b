package httpfront

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

// notCopied are names that speak of this connection or this body, not of the call.
var notCopied = map[string]bool{
	"accept": true, "connection": true, "expect": true, "host": true, "keep-alive": true, "te": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "inference-header-content-length": true, "x-request-timeout": true,
}

// notCopiedPrefixes are families of such names, and those that gRPC keeps for itself.
var notCopiedPrefixes = []string{"grpc-", "content-", "accept-", "proxy-", ":"}

// Incoming makes a call's metadata of HTTP headers: lower-case names, every value kept in order, names ending in
// -bin decoded from base64. Left out are the headers of the connection (also those that Connection names) and of the
// body, names that gRPC reserves, and names that gRPC metadata cannot have. The error is a fault for a -bin
// header that is not base64; the metadata without it is returned all the same.
func Incoming(h http.Header) (map[string][]string, error) {
	var bad error
	hop := make(map[string]bool)
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			hop[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	in := make(map[string][]string, len(h))
	for header, values := range h {
		name := strings.ToLower(header)
		if hop[name] || !copied(name) {
			continue
		}
		if !strings.HasSuffix(name, "-bin") {
			in[name] = append([]string(nil), values...)
			continue
		}
		decoded, err := decodeBin(name, values)
		if err != nil {
			bad = err
			continue
		}
		in[name] = decoded
	}
	return in, bad
}

func copied(name string) bool {
	if notCopied[name] {
		return false
	}
	for _, p := range notCopiedPrefixes {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// decodeBin decodes values of a -bin header: base64 with or without padding, several in one value behind commas.
func decodeBin(name string, values []string) ([]string, error) {
	var all []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			part = strings.TrimRight(strings.TrimSpace(part), "=")
			b, err := base64.RawStdEncoding.DecodeString(part)
			if err != nil {
				return nil, fault.New(fault.InvalidArgument, "header %s is not base64, as names ending in -bin must be", name)
			}
			all = append(all, string(b))
		}
	}
	return all, nil
}
