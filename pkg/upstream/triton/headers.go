package triton

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/grpc/metadata"
)

// Bounds on headers of an upstream.
const (
	maxHeaders     = 32
	maxHeaderValue = 8 << 10 // bytes
)

// checkHeaders says what is wrong with headers, naming the header and never its value.
func checkHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return fmt.Errorf("%d headers; at most %d can be sent", len(headers), maxHeaders)
	}
	for name, value := range headers {
		switch {
		case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
			return fmt.Errorf("header %q: a name has lower-case letters, digits and -_. alone", name)
		case strings.HasPrefix(name, "grpc-") || name == "content-type" || name == "te" || name == "user-agent" || name == "host":
			return fmt.Errorf("header %q is gRPC's own", name)
		case len(value) > maxHeaderValue:
			return fmt.Errorf("header %q: its value has %d bytes; at most %d can be sent", name, len(value), maxHeaderValue)
		}
		for i := range len(value) {
			if !strings.HasSuffix(name, "-bin") && (value[i] < 0x20 || value[i] > 0x7e) {
				return fmt.Errorf("header %q: its value must be printable ASCII; is there a line break at its end?", name)
			}
		}
	}
	return nil
}

// setHeaders makes headers those of every RPC from now on; streams that are open have what they were opened with.
func (u *Upstream) setHeaders(headers map[string]string) {
	if len(headers) == 0 {
		u.headers.Store(nil)
		return
	}
	u.headers.Store(new(metadata.New(headers)))
}

// outgoing is ctx for an RPC with md, to which the upstream's own headers are added; of two of one name the upstream's is
// sent. md is left as it is, since a further attempt may go to another upstream, which must not learn them.
func (u *Upstream) outgoing(ctx context.Context, md map[string][]string) context.Context {
	own := u.headers.Load()
	if own == nil {
		return metadata.NewOutgoingContext(ctx, md)
	}
	all := make(metadata.MD, len(md)+len(*own))
	maps.Copy(all, md)
	maps.Copy(all, *own)
	return metadata.NewOutgoingContext(ctx, all)
}
