package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/internal/wholefile"
)

// lastGoodName is the file in state_dir that the last good configuration is kept in.
const lastGoodName = "config.last-good.yaml"

// ErrNoLastGood is the error of KeepLastGood and LoadLastGood when no state_dir is known, or nothing is kept there.
var ErrNoLastGood = errors.New("no last good configuration: set state_dir (or GATEWAY_STATE_DIR) to a folder that outlives restarts")

// KeepLastGood writes the text of c to its state_dir, for LoadLastGood to find. Call it once c is in force. The
// file is replaced as a whole: a crash leaves the old one or the new one. Without a state_dir, or without a file, the
// error is ErrNoLastGood; any error is worth a warning and no more.
func KeepLastGood(c *Config) error {
	if c.StateDir == "" || c.Path == "" {
		return ErrNoLastGood
	}
	if err := wholefile.Replace(filepath.Join(c.StateDir, lastGoodName), c.Source); err != nil {
		return fmt.Errorf("the last good configuration cannot be kept: %w", err)
	}
	return nil
}

// LoadLastGood loads what KeepLastGood kept, for a start whose file at path is bad. The environment, else what can
// still be read of that file, says where it is kept. Without one the error is ErrNoLastGood; a kept file that this
// version cannot serve gives Errors.
func LoadLastGood(path string, env func(string) string) (*Config, error) {
	dir := stateDir(path, env)
	if dir == "" {
		return nil, ErrNoLastGood
	}
	kept := filepath.Join(dir, lastGoodName)
	c, err := loadFrom(kept, folderOf(path), env)
	if err != nil {
		if _, statErr := os.Stat(kept); os.IsNotExist(statErr) {
			return nil, ErrNoLastGood
		}
		return nil, err
	}
	return c, nil
}

// stateDir finds state_dir even in a file that cannot be served.
func stateDir(path string, env func(string) string) string {
	if env != nil {
		if dir := strings.TrimSpace(env(envStateDir)); dir != "" {
			return dir
		}
	}
	source, err := readFile(path)
	if err != nil {
		return ""
	}
	r := newReader(path, source)
	if file := r.file(source); file != nil {
		return file.StateDir
	}
	// The file is no YAML: its line may be whole all the same.
	for line := range strings.Lines(string(source)) {
		if rest, ok := strings.CutPrefix(line, "state_dir:"); ok {
			r := newReader(path, []byte(line))
			file := &File{}
			if body, bad := parseYAML([]byte("state_dir:" + rest)); bad == nil && body != nil {
				r.read(body, field{}, reflect.ValueOf(file).Elem(), 0)
				return file.StateDir
			}
		}
	}
	return ""
}
