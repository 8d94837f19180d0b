package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Entry is one change, or an attempt at one, for the record.
type Entry struct {
	Time    time.Time `json:"time"`
	Who     string    `json:"who"`      // a caller's name; "loopback", "file", "issuer", "signal" where nobody has one
	What    string    `json:"what"`     // "reload config"
	Scope   string    `json:"scope"`    // what it changed: "this replica"
	OldHash string    `json:"old_hash"` // of what was in force before
	NewHash string    `json:"new_hash"` // of what is in force now; the same where nothing changed
	Result  string    `json:"result"`   // Done, or "refused: " and why
	Address string    `json:"address"`  // where it came from; "" for what happened on this machine
}

// Done is the Result of a change that was made.
const Done = "done"

// Who changes what without being a caller.
const (
	ByFile   = "file"   // the configuration's file changed, or one that it names
	ByIssuer = "issuer" // the keys of tokens are others
	BySignal = "signal" // the process was sent a SIGHUP
)

// ThisReplica is the Scope of what other replicas do not follow.
const ThisReplica = "this replica"

const (
	auditName = "audit.log"
	auditMost = 10 << 20 // bytes of a file before it is set aside
	auditKept = 3        // files set aside
	maxField  = 4096     // bytes of one field
)

// Audit keeps the record of changes: each is a line of JSON in the log and, where there is a folder for it, at the end of
// its audit.log, on the disk before Append returns. A record that cannot be kept is an error in the log; it holds up
// nothing.
type Audit struct {
	log *slog.Logger
	dir func() string
	now func() time.Time

	mu sync.Mutex // one line at a time
}

// NewAudit makes a record. dir gives the folder (state_dir), which may change; "" keeps no file. log is not nil.
func NewAudit(log *slog.Logger, dir func() string) *Audit {
	return &Audit{log: log, dir: dir, now: time.Now}
}

// Append keeps e, whose Time is now where it is not set. A nil Audit keeps nothing.
func (a *Audit) Append(e Entry) {
	if a == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = a.now()
	}
	e.Time = e.Time.UTC().Truncate(time.Microsecond)
	for _, f := range []*string{&e.Who, &e.What, &e.Scope, &e.OldHash, &e.NewHash, &e.Result, &e.Address} {
		*f = clip(*f)
	}
	a.log.Info(
		"audit", "who", e.Who, "what", e.What, "scope", e.Scope, "old_hash", e.OldHash, "new_hash", e.NewHash,
		"result", e.Result, "address", e.Address,
	)
	dir := ""
	if a.dir != nil {
		dir = a.dir()
	}
	if dir == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := appendLine(filepath.Join(dir, auditName), e); err != nil {
		a.log.Error("the audit of a change could not be kept in state_dir; it stands in this log only", "state_dir", dir, "error", err)
	}
}

// Change runs change, which is to bring hash from one value to another, and keeps what came of it.
func (a *Audit) Change(who, what, scope, address string, hash func() string, change func() error) error {
	e := Entry{Who: who, What: what, Scope: scope, Address: address, OldHash: hash(), Result: Done}
	err := change()
	if err != nil {
		e.Result = "refused: " + err.Error()
	}
	e.NewHash = hash()
	a.Append(e)
	return err
}

// Reload is Change for the configuration read again.
func (a *Audit) Reload(who, address string, hash func() string, reload func() error) error {
	return a.Change(who, "reload config", ThisReplica, address, hash, reload)
}

func clip(s string) string {
	if len(s) <= maxField {
		return s
	}
	return strings.ToValidUTF8(s[:maxField], "") + "…"
}

// appendLine writes e at the end of the file at path, and on its own line even where a crash has left half a one. The
// file is opened anew each time: changes are rare, and somebody may have moved it.
func appendLine(path string, e Entry) (err error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // ends the line
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return err
	}
	line := b.Bytes()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := rotate(path, int64(len(line))); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if n := info.Size(); n > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, n-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.Write(line); err != nil {
		return err
	}
	return f.Sync()
}

// rotate sets the file at path aside, as path.1, when more bytes would make it too large; older ones move up, and
// the oldest goes.
func rotate(path string, more int64) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size()+more <= auditMost {
		return err
	}
	for i := auditKept; i > 0; i-- {
		from := path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", path, i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
