package sandbox

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/metadata"
)

// headerPattern compiles Options.ForwardHeaders; nil for none.
func headerPattern(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no pattern is a pattern that matches nothing
	}
	pattern, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return nil, fmt.Errorf("Options.ForwardHeaders: %w", err)
	}
	return pattern, nil
}

// forwardHeaders gives the model, as string parameters, the metadata whose name the pattern matches. A header wins over a
// parameter of its name, of a header sent several times the last value counts, and a value ends at its first zero byte,
// all as on the real server.
func (s *Server) forwardHeaders(ctx context.Context, parameters map[string]any) {
	if s.headers == nil {
		return
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		if len(values) > 0 && s.headers.MatchString(name) {
			value, _, _ := strings.Cut(values[len(values)-1], "\x00")
			parameters[name] = value
		}
	}
}
