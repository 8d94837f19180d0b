package redis

import (
	"context"
	_ "embed"
	"time"
)

// Sequences is where sequences are, as all replicas know it: a text for each, under a key of its own that goes when
// nobody has asked for it in a while. Each method is one round trip, bounded by Options.Timeout, and ErrDown at once
// while Redis is known not to answer.
type Sequences struct{ client *Client }

// OpSequence is what calls about sequences are for.
const OpSequence = "sequence"

//go:embed sequences.lua
var sequencesText string

var sequencesScript = newScript(sequencesText)

// NewSequences gives those of c.
func NewSequences(c *Client) *Sequences { return &Sequences{client: c} }

// Ask gives what is known of the sequence that key names, "" when nothing is, and keeps it for keep from now.
func (s *Sequences) Ask(ctx context.Context, key string, keep time.Duration) (string, error) {
	return s.run(ctx, key, "ask", keep)
}

// Put keeps text, in place of anything.
func (s *Sequences) Put(ctx context.Context, key, text string, keep time.Duration) error {
	_, err := s.run(ctx, key, "put", keep, text)
	return err
}

// Claim keeps text where nothing is known, and gives what is known then: text, or what another replica has kept before.
func (s *Sequences) Claim(ctx context.Context, key, text string, keep time.Duration) (string, error) {
	return s.run(ctx, key, "claim", keep, text)
}

// Swap keeps next in place of text, unless something else is known by now, and gives what is known then.
func (s *Sequences) Swap(ctx context.Context, key, text, next string, keep time.Duration) (string, error) {
	return s.run(ctx, key, "swap", keep, text, next)
}

func (s *Sequences) run(ctx context.Context, key, what string, keep time.Duration, texts ...string) (string, error) {
	args := append(make([]any, 0, 8), what, keep.Milliseconds())
	for _, text := range texts {
		args = append(args, text)
	}
	cmd, err := s.client.ask(ctx, OpSequence, "sequence:{"+key+"}", &sequencesScript, args...)
	if err != nil {
		return "", err
	}
	return cmd.Text()
}
