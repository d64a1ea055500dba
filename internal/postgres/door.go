package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// hostBasedAuth lets in over the socket whoever may enter its directory, which is the server's
// user alone, and over loopback whoever knows the password. With trust there, any user of the
// machine would be the superuser, who may run programs.
const hostBasedAuth = `local all         all              trust
local replication all              trust
host  all         all 127.0.0.1/32 scram-sha-256
host  replication all 127.0.0.1/32 scram-sha-256
`

// closeDoor gives the superuser a password, over the socket, and returns the URL to log in with.
func (p *private) closeDoor(ctx context.Context) (string, error) {
	password, secret, err := newPassword()
	if err != nil {
		return "", err
	}
	cfg, err := pgx.ParseConfig("user=postgres dbname=postgres sslmode=disable port=" + strconv.Itoa(p.port))
	if err != nil {
		return "", err
	}
	cfg.Host = p.base // not in the text above, where a space in the path would need care
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// The first statement makes the second one survive Kill on a server that is not durable.
	_, err = conn.Exec(ctx, "SET synchronous_commit = on; ALTER ROLE postgres PASSWORD '"+secret+"'")
	if err != nil {
		return "", err
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", password),
		Host:     "127.0.0.1:" + strconv.Itoa(p.port),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String(), nil
}

// newPassword returns a random password and its secret in the form that Postgres stores (RFC
// 5803). One iteration is enough, since 128 random bits need no stretching, and tests log in
// thousands of times.
func newPassword() (password, secret string, err error) {
	random, salt := make([]byte, 16), make([]byte, 16)
	_, _ = rand.Read(random) // never fails, by its documentation
	_, _ = rand.Read(salt)
	password = hex.EncodeToString(random)

	salted, err := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	if err != nil {
		return "", "", err
	}
	mac := func(text string) []byte {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(mac("Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return password, fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", b64(salt), b64(stored[:]), b64(mac("Server Key"))), nil
}
