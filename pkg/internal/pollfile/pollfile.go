// Package pollfile reads small files again and again, and tells when what they say has changed. It looks at the text
// itself every few seconds: that costs next to nothing for certificates and keys, and holds on every file system, for
// symbolic links that are swapped (as those of mounted secrets) and for editors that write a new file over the old.
package pollfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"
)

// MaxBytes is the most that one file may have.
const MaxBytes = 1 << 20

// Every is how often Watch looks at files that give no other interval.
const Every = 2 * time.Second

// Files are the texts of some files, as they were read together.
type Files struct {
	Texts [][]byte          // in the order of the paths
	Sum   [sha256.Size]byte // differs when any of them differs
}

// Read reads the files at paths. The error names the one that cannot be read.
func Read(paths ...string) (Files, error) {
	f := Files{Texts: make([][]byte, 0, len(paths))}
	sum := sha256.New()
	for _, path := range paths {
		text, err := readOne(path)
		if err != nil {
			return Files{}, err
		}
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		_, _ = sum.Write(size[:])
		_, _ = sum.Write(text)
		f.Texts = append(f.Texts, text)
	}
	sum.Sum(f.Sum[:0])
	return f, nil
}

func readOne(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s has more than %d bytes; it is not what is expected here", path, MaxBytes)
	}
	return text, nil
}

// Watch calls changed with each new text of the files at paths, and once with the error when they cannot be read,
// until ctx ends. seen is the Sum of what the caller has already.
func Watch(ctx context.Context, every time.Duration, paths []string, seen [sha256.Size]byte, changed func(Files, error)) {
	if every <= 0 {
		every = Every
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f, err := Read(paths...)
		switch {
		case err != nil:
			if err.Error() != failing {
				failing = err.Error()
				changed(Files{}, err)
			}
		case f.Sum != seen:
			seen, failing = f.Sum, ""
			changed(f, nil)
		default:
			failing = ""
		}
	}
}
