package redis

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Overrides are small texts by name that all replicas share: what operators have put in place of what their files say.
// They are one hash; a revision tells replicas whether there is anything new, so that asking every second costs next to
// nothing. A Redis that lost them says so by a revision of another epoch.
//
// A Redis that answers by an error, such as that its user may not, does not count as down for that: limits may do well.
type Overrides struct {
	client *Client
	key    string
	script script
}

// OpOverrides is what calls about overrides are for.
const OpOverrides = "overrides"

// Bounds on overrides.
const (
	MaxOverrides     = 100       // names
	MaxOverride      = 256 << 10 // bytes of a text
	maxOverridesName = 256       // bytes
)

// Errors of Put.
var (
	// ErrReplaced says that another one stands there now.
	ErrReplaced = errors.New("it has been replaced meanwhile")
	// ErrFull says that there are MaxOverrides already.
	ErrFull = fmt.Errorf("there are %d overrides already; take some back first", MaxOverrides)
)

//go:embed overrides.lua
var overridesScript string

// NewOverrides makes the overrides of a kind, such as "scripts".
func NewOverrides(c *Client, kind string) *Overrides {
	return &Overrides{client: c, key: "overrides:{" + kind + "}", script: newScript(overridesScript)}
}

// Poll gives the revision, "" where there has never been an override, and the ids by name when it is another one than
// known; else ids is nil. Revisions are <epoch>.<number>; another epoch means that what had been there was lost.
func (o *Overrides) Poll(ctx context.Context, known string) (rev string, ids map[string]string, err error) {
	answer, err := o.run(ctx, "poll", known)
	if err != nil {
		return "", nil, err
	}
	if len(answer)%2 != 1 {
		return "", nil, fmt.Errorf("redis: %d words about overrides; is the prefix shared with something else?", len(answer))
	}
	if rev = answer[0]; rev == known && rev != "" {
		return rev, nil, nil
	}
	ids = make(map[string]string, len(answer)/2)
	for i := 1; i < len(answer); i += 2 {
		ids[answer[i]] = answer[i+1]
	}
	return rev, ids, nil
}

// Get gives the text of a name, and its id: "" when there is none.
func (o *Overrides) Get(ctx context.Context, name string) (id string, text []byte, err error) {
	answer, err := o.run(ctx, "get", name)
	if err != nil || len(answer) != 2 {
		return "", nil, err
	}
	return answer[0], []byte(answer[1]), nil
}

// Put sets the text of a name. over is the id that it replaces, "" where there is to be none, or Any.
func (o *Overrides) Put(ctx context.Context, name, id string, text []byte, over string) error {
	switch {
	case name == "" || len(name) > maxOverridesName || id == "" || id == Any || len(id) > maxOverridesName:
		return fmt.Errorf("a name and an id of 1 to %d bytes are needed", maxOverridesName)
	case len(text) > MaxOverride:
		return fmt.Errorf("%d bytes; an override may have %d", len(text), MaxOverride)
	}
	answer, err := o.run(ctx, "put", name, id, string(text), over, strconv.Itoa(MaxOverrides), rand.Text()[:12])
	return said(answer, err)
}

// Any stands for any id in Put and Remove.
const Any = "any"

// Remove takes an override back; id is its id, or Any. What has another id by now stays.
func (o *Overrides) Remove(ctx context.Context, name, id string) error {
	_, err := o.run(ctx, "remove", name, id)
	return err
}

// End lets an override go after a while, unless something is put in its place before: other replicas may still need it.
func (o *Overrides) End(ctx context.Context, name, id string, after time.Duration) error {
	answer, err := o.run(ctx, "end", name, id, strconv.FormatInt(after.Milliseconds(), 10))
	return said(answer, err)
}

func said(answer []string, err error) error {
	switch {
	case err != nil:
		return err
	case len(answer) == 1 && answer[0] == "other":
		return ErrReplaced
	case len(answer) == 1 && answer[0] == "full":
		return ErrFull
	}
	return nil
}

// run runs the script, whose last words are those of what.
func (o *Overrides) run(ctx context.Context, what ...string) (answer []string, err error) {
	args := []any{nil, nil, 1, o.client.Key(o.key)}
	for _, word := range what {
		args = append(args, word)
	}
	b, err := o.client.asked(OpOverrides, o.key)
	if err != nil {
		return nil, err
	}
	var cmd *goredis.Cmd
	var refused goredis.Error
	begun := time.Now()
	err = b.try(ctx, o.key, o.client.options.Timeout, 1, func(ctx context.Context) error {
		var err error
		if cmd, err = o.client.eval(ctx, &o.script, args); errors.As(err, &refused) {
			return nil
		}
		return err
	})
	if err == nil && refused != nil {
		err = refused
	}
	if err = o.client.told(OpOverrides, begun, err); err != nil {
		return nil, err
	}
	return cmd.StringSlice()
}
