// Check judges what lies in deploy/ by the code of those who will read it. See the script manifests beside it.
package main

import (
	"fmt"
	"os"
)

const usage = `usage:
  check kubernetes < MANIFESTS          objects as the API server would judge them, pods as its "restricted" level does
  check compose FILE                    a compose file as Docker Compose would load it
  check queries FILES -- METRICS FILES  queries of dashboards and rules against what a service shows on /metrics`

func main() {
	commands := map[string]func([]string) (string, error){"kubernetes": kubernetes, "compose": compose, "queries": queries}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	told, err := commands[os.Args[1]](os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(told)
}
