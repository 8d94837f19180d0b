package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
)

func TestASavedFileIsInForceWithinASecondHoweverItIsSaved(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": answering("model_v1")})
	follows(t, f)
	calm.Moment(t, func() error {
		f.write("fraud.lua", answering("model_v1"))
		f.eventually("fraud", "model_v1")
		begun := time.Now()
		f.write("fraud.lua", answering("model_v2")) // in place
		f.eventually("fraud", "model_v2")
		if took := time.Since(begun); took > 3*time.Second { // one on a machine that is not busy
			return fmt.Errorf("it took %v", took)
		}
		return nil
	})
	f.replace("fraud.lua", answering("model_v3")) // beside it, and then over it
	f.eventually("fraud", "model_v3")
	f.replace("fraud.lua", "return (")         // in place it is empty for a moment, and a script that says nothing takes its place
	f.write("rank.lua", answering("model_v2")) // a new one
	f.eventually("rank", "model_v2")
	f.decides("fraud", "model_v3")
	f.write("rank.lua", "-- no script\n")
	f.eventually("rank", ReasonNone)
}

func TestAConfigMapThatIsSwappedIsFollowed(t *testing.T) {
	f := fix(t, nil)
	// As the kubelet does it: files are links into ..data, which is a link to a folder that is replaced.
	put := func(version, text string) {
		t.Helper()
		folder := filepath.Join(f.dir, ".."+version)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "fraud.lua"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(f.dir, "..data_tmp")
		if err := os.Symlink(".."+version, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(f.dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	put("one", answering("model_v1"))
	if err := os.Symlink(filepath.Join("..data", "fraud.lua"), filepath.Join(f.dir, "fraud.lua")); err != nil {
		t.Fatal(err)
	}
	follows(t, f)
	f.eventually("fraud", "model_v1")
	put("two", answering("model_v2"))
	f.eventually("fraud", "model_v2")
	if err := os.RemoveAll(filepath.Join(f.dir, "..one")); err != nil {
		t.Fatal(err)
	}
	put("three", answering("model_v3"))
	f.eventually("fraud", "model_v3")
}

func TestAFolderThatIsMadeLaterIsFollowed(t *testing.T) {
	f := fix(t, nil, func(o *Options) { o.Dir = filepath.Join(o.Dir, "scripts", "lua") })
	follows(t, f)
	f.dir = f.opts.Dir
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("fraud.lua", answering("model_v2"))
	f.eventually("fraud", "model_v2")
}

// Each version says in its reason which one it is, and only versions that hold have a target; half are broken.
func TestAThousandReloadsUnderLoadDecideNothingWrongly(t *testing.T) {
	reloads := 1000
	if testing.Short() {
		reloads = 100
	}
	f := fix(t, map[string]string{"fraud.lua": "return 'model_v2', 'version 0'"})
	before := runtime.NumGoroutine()
	var stop atomic.Bool
	var decided, wrong atomic.Int64
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			c := &inference.Call{Model: fraud, Identity: inference.Identity{User: "u1"}, Head: inference.Head{Model: "fraud"}}
			last := -1
			for !stop.Load() || decided.Load() < int64(reloads) {
				c.Start = time.Now()
				target, reason, ok := f.Decide(t.Context(), "fraud", "fraud", c)
				var version int
				if _, err := fmt.Sscanf(reason, "version %d", &version); err != nil || !ok || target != "model_v2" || version%2 != 0 || version < last {
					if wrong.Add(1) == 1 {
						t.Errorf("%q %q %v after version %d", target, reason, ok, last)
					}
				}
				last = version
				if decided.Add(1)%4 == 0 {
					runtime.Gosched() // or reloads wait for a processor, and not for what is tested
				}
			}
		})
	}
	for i := 1; i <= reloads; i++ {
		text := fmt.Sprintf("return 'model_v2', 'version %d'", i)
		if i%2 == 1 {
			text = []string{"return (", fmt.Sprintf("return 'model_v9', 'version %d'", i), " "}[i/2%3]
		}
		f.write("fraud.lua", text)
		if err := f.Reload(); (err != nil) != (i%2 == 1) {
			t.Fatalf("reload %d: %v", i, err)
		}
	}
	stop.Store(true)
	callers.Wait()
	if wrong.Load() > 0 {
		t.Errorf("%d of %d decisions were wrong", wrong.Load(), decided.Load())
	}
	redistest.Eventually(t, func() error { // callers have returned, and yet a goroutine may still be on its way out
		if now := runtime.NumGoroutine(); now > before {
			return fmt.Errorf("%d goroutines, and %d before", now, before)
		}
		return nil
	})
	if i := f.state1("fraud"); i.State != StateOK || len(i.History) != MaxHistory {
		t.Errorf("%+v", i)
	}
}
