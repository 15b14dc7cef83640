package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// startTimeout bounds every start, on a busy machine too.
const startTimeout = 30 * time.Second

// A process of the drill, with its log.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan error
}

func run(log string, environment []string, name string, arguments ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	command := exec.Command(name, arguments...)
	command.Env, command.Stdout, command.Stderr = environment, file, file
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return &process{command, log, ended}, nil
}

func (p *process) stop() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// hasEnded waits a moment for the end of a process that has just closed its connections.
func (p *process) hasEnded() bool {
	select {
	case err := <-p.ended:
		p.ended <- err
		return true
	case <-time.After(time.Second):
		return false
	}
}

// await polls until ready answers true, the process ends, or the time is over.
func (p *process) await(ready func() bool) error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.ended <- err
			text, _ := os.ReadFile(p.log)
			return fmt.Errorf("ended: %v\n%s", err, text)
		default:
		}
		if ready() {
			return nil
		}
	}
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("did not start in %v\n%s", startTimeout, text)
}

// freePorts returns different ports. The peer shares a port that is taken (SO_REUSEPORT), where others fail.
func freePorts(count int) []int {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// A Redis of its own for each service.
type redis struct {
	*process
	address string
}

func startRedis(dir, name string) (*redis, error) {
	port := freePorts(1)[0]
	p, err := run(filepath.Join(dir, name+".log"), os.Environ(), "redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	if err != nil {
		return nil, err
	}
	r := &redis{p, fmt.Sprintf("127.0.0.1:%d", port)}
	return r, p.await(func() bool { return r.command("PING") == nil })
}

// command sends one command and reads its one line of reply.
func (r *redis) command(text string) error {
	connection, err := net.DialTimeout("tcp", r.address, startTimeout)
	if err != nil {
		return err
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(startTimeout))
	if _, err = io.WriteString(connection, text+"\r\n"); err != nil {
		return err
	}
	reply := make([]byte, 16)
	n, err := connection.Read(reply)
	if err == nil && reply[0] != '+' {
		err = errors.New(string(reply[:n]))
	}
	return err
}

// A service under comparison.
type service struct {
	*process
	http   string
	client rls.RateLimitServiceClient
	close  func()
}

// startService starts one of the two services with the same variables, less addresses.
func startService(binary, name, dir string, redis *redis, variables []string) (*service, error) {
	ports := freePorts(3)
	grpcPort, httpPort, debugPort := ports[0], ports[1], ports[2]
	environment := append([]string{
		"HOST=127.0.0.1", fmt.Sprintf("PORT=%d", httpPort), "GRPC_HOST=127.0.0.1", fmt.Sprintf("GRPC_PORT=%d", grpcPort),
		"DEBUG_HOST=127.0.0.1", fmt.Sprintf("DEBUG_PORT=%d", debugPort), "RUNTIME_ROOT=" + dir, "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.address, "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=ERROR",
		// The peer waits for its Redis as long as its client does; Weir would decide without it.
		"WEIR_STORE__REDIS__COMMAND_TIMEOUT=10s", "PATH=" + os.Getenv("PATH"),
	}, variables...)
	p, err := run(filepath.Join(dir, name+".log"), environment, binary)
	if err != nil {
		return nil, err
	}
	s := &service{process: p, http: fmt.Sprintf("http://127.0.0.1:%d", httpPort)}
	err = p.await(func() bool {
		answer, err := http.Get(s.http + "/healthcheck")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	connection, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", grpcPort), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.stop()
		return nil, err
	}
	s.client = rls.NewRateLimitServiceClient(connection)
	s.close = func() { connection.Close(); p.stop() }
	return s, nil
}

// accepts tells whether a service's own checker reads a directory of policy files.
func accepts(binary string, arguments ...string) (bool, string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, binary, arguments...).CombinedOutput()
	return err == nil, strings.TrimSpace(string(text))
}
