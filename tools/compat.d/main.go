// Command compat makes, against Berth's sandbox and through the clouds' own client libraries, the calls that their
// command-line clients and Terraform providers make, in the same order and with the same conditions for going on.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	waitAtMost = 60 * time.Second
	waitStep   = 100 * time.Millisecond
	// The only one that tools/compat lets the sandbox accept.
	token = "sandbox"
)

// play runs steps and counts how they went. A step builds on those before it, so after a failure the rest of its suite
// is not run.
type play struct {
	folder                 string
	broken                 bool
	passed, failed, notRun int
}

func (p *play) suite(name string) {
	p.broken = false
	fmt.Println(name)
}

func (p *play) step(name string, run func() error) {
	if p.broken {
		p.notRun++
		fmt.Printf("  skip  %s\n", name)
		return
	}
	began := time.Now()
	if err := run(); err != nil {
		p.failed++
		p.broken = true
		fmt.Printf("  FAIL  %s: %v\n", name, err)
		return
	}
	p.passed++
	fmt.Printf("  ok    %s (%.1f s)\n", name, time.Since(began).Seconds())
}

// until asks again and again until the answer is yes, an error comes, or it has been long enough.
func until(what string, ask func() (bool, error)) error {
	for deadline := time.Now().Add(waitAtMost); time.Now().Before(deadline); time.Sleep(waitStep) {
		done, err := ask()
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("waited %s for %s", waitAtMost, what)
}

// want says what is not as it should be; nil when all is well.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func same[T comparable](what string, got, expected T) error {
	return want(got == expected, "%s is %v, not %v", what, got, expected)
}

func all(checks ...error) error {
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

// nodes asks a cluster's own API, with kubectl, for the names of its nodes that are ready.
func (p *play) nodes(kubeconfig []byte) ([]string, error) {
	file := filepath.Join(p.folder, "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	ready := `{range .items[*]}{.metadata.name}{" "}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`
	command := exec.Command("kubectl", "--kubeconfig", file, "--request-timeout=10s", "get", "nodes", "-o", "jsonpath="+ready)
	output, err := command.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			return nil, fmt.Errorf("kubectl get nodes: %s", strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, err
	}
	var names []string
	for _, line := range strings.Split(string(output), "\n") {
		if name, ok := strings.CutSuffix(line, " True"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// onlyDefaults waits until a cloud holds nothing but what every account starts with.
func onlyDefaults(url string) error {
	left := ""
	err := until("an empty ledger", func() (bool, error) {
		answer, err := http.Get(url + "/_sandbox/ledger")
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		var ledger struct{ Objects []map[string]any }
		if err := json.NewDecoder(answer.Body).Decode(&ledger); err != nil {
			return false, err
		}
		if len(ledger.Objects) == 0 {
			return false, fmt.Errorf("the ledger does not even have the default networks")
		}
		left = ""
		for _, object := range ledger.Objects {
			if object["default"] != true {
				left += fmt.Sprintf(" %v %v;", object["type"], object["name"])
			}
		}
		return left == "", nil
	})
	if err != nil && left != "" {
		return fmt.Errorf("%w; left over:%s", err, left)
	}
	return err
}

func main() {
	civo := flag.String("civo", "", "where the simulated Civo is")
	ocean := flag.String("digitalocean", "", "where the simulated DigitalOcean is")
	flag.Parse()
	folder, err := os.MkdirTemp("", "berth-compat-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	p := &play{folder: folder}
	civoCommands(p, *civo)
	civoTerraform(p, *civo)
	oceanCommands(p, *ocean)
	oceanTerraform(p, *ocean)
	os.RemoveAll(folder)
	if p.notRun > 0 {
		fmt.Printf("%d not run, because of a failure before them\n", p.notRun)
	}
	fmt.Printf("%d passed, %d failed\n", p.passed, p.failed)
	if p.failed > 0 {
		os.Exit(1)
	}
}
