package weir_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	weir "github.com/OWNER/weir/clients/go"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
)

// token is a new one, and its hash for the credentials file.
func token(t testing.TB) (value, sha256 string) {
	t.Helper()
	output, err := exec.Command(weirtest.Binary(), "token", "shop", "--json").Output()
	succeeded(t, err)
	var made struct{ Token, Sha256 string }
	succeeded(t, json.Unmarshal(output, &made))
	return made.Token, made.Sha256
}

func write(t testing.TB, path, content string) {
	t.Helper()
	temporary := path + ".tmp"
	succeeded(t, os.WriteFile(temporary, []byte(content), 0o600))
	succeeded(t, os.Rename(temporary, path))
}

func credentials(hash string) string {
	return fmt.Sprintf("callers: { shop: { roles: [check], tokens: [{ sha256: %s }] } }\n", hash)
}

func TestTLSAndTokens(t *testing.T) {
	cert, key := weirtest.Certificate(t, "weir")
	value, hash := token(t)
	file := filepath.Join(t.TempDir(), "callers.yaml")
	write(t, file, credentials(hash))
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+file, "WEIR_GRPC__TLS__CERT="+cert, "WEIR_GRPC__TLS__KEY="+key)
	tls := weir.WithTLS(weir.TLS{CA: cert})

	check(t, connect(t, server.Grpc, tls, weir.WithToken(value)), trade)
	check(t, connect(t, server.Grpc, weir.WithTLS(weir.TLS{CA: cert, ServerName: "weir"}), weir.WithToken(value)), trade)
	// A list verifies the name of each address.
	check(t, connect(t, server.Grpc+","+server.Grpc, tls, weir.WithToken(value)), trade)

	for _, options := range [][]weir.Option{{tls}, {tls, weir.WithToken("guessed")}} {
		options = append(options, weir.WithOnFailure(weir.Allow))
		_, err := connect(t, server.Grpc, options...).Check(context.Background(), trade)
		failed(t, err, weir.ErrUnauthenticated)
	}
	_, err := connect(t, server.Grpc, tls, weir.WithToken(value)).Reset(context.Background(), "", trade)
	failed(t, err, weir.ErrPermissionDenied)
	other, _ := weirtest.Certificate(t, "other")
	_, err = connect(t, server.Grpc, weir.WithTLS(weir.TLS{CA: other})).Check(context.Background(), trade, weir.Deadline(time.Second))
	failed(t, err, weir.ErrUnavailable)
}

func TestMutualTLS(t *testing.T) {
	cert, key := weirtest.Certificate(t, "weir")
	ours, oursKey := weirtest.Certificate(t, "shop")
	theirs, theirsKey := weirtest.Certificate(t, "guessed")
	server := weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__TLS__CERT="+cert, "WEIR_GRPC__TLS__KEY="+key, "WEIR_GRPC__TLS__CLIENT_CA="+ours)

	files := weir.TLS{CA: cert, Cert: ours, Key: oursKey}
	check(t, connect(t, server.Grpc, weir.WithTLS(files)), trade)
	files.Cert, files.Key = theirs, theirsKey
	_, err := connect(t, server.Grpc, weir.WithTLS(files)).Check(context.Background(), trade, weir.Deadline(time.Second))
	failed(t, err, weir.ErrUnavailable)
}

func TestTokenFileRotates(t *testing.T) {
	first, firstHash := token(t)
	second, secondHash := token(t)
	directory := t.TempDir()
	callers, file := filepath.Join(directory, "callers.yaml"), filepath.Join(directory, "token")
	write(t, callers, credentials(firstHash))
	write(t, file, first+"\n")
	server := weirtest.Start(t, weirtest.Limits, "WEIR_AUTH__FILE="+callers, "WEIR_LIMITS_POLL=10ms")
	client := connect(t, server.Grpc, weir.WithTokenFile(file))
	check(t, client, trade, weir.Cost(0))

	write(t, callers, credentials(secondHash))
	weirtest.Until(t, "the first token is revoked", func() bool {
		_, err := client.Check(context.Background(), trade, weir.Cost(0))
		return err != nil
	})
	// A file that is gone changes nothing.
	succeeded(t, os.Remove(file))
	_, err := client.Check(context.Background(), trade, weir.Cost(0))
	failed(t, err, weir.ErrUnauthenticated)
	write(t, file, second)
	weirtest.Until(t, "the second token is read", func() bool {
		_, err := client.Check(context.Background(), trade, weir.Cost(0))
		return err == nil
	})
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "weir.sock")
	weirtest.Start(t, weirtest.Limits, "WEIR_GRPC__LISTEN=unix:"+socket)
	equal(t, "remaining", check(t, connect(t, "unix:"+socket), trade).Remaining, 2)
}
