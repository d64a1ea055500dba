package servers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const zookeeperJar = "/usr/share/java/zookeeper.jar"

// A tick of half a second lets sessions be as short as a second; the default would make it four.
const zookeeperConfig = `tickTime=500
dataDir=%s
clientPort=%s
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
`

const zookeeperLog = `log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d %p %m%n
`

func (s *Set) zookeeper(ctx context.Context) (Server, error) {
	java, err := program("java", "zookeeper")
	if err != nil {
		return Server{}, err
	}
	if _, err := os.Stat(zookeeperJar); err != nil {
		return Server{}, missing("zookeeper", "zookeeper")
	}
	address, port, err := loopback()
	if err != nil {
		return Server{}, err
	}
	c, err := s.beside(ZooKeeper)
	if err != nil {
		return Server{}, err
	}
	config, err := c.WriteFile("zoo.cfg", fmt.Sprintf(zookeeperConfig, filepath.Join(c.Dir(), "data"), port))
	if err != nil {
		return Server{}, err
	}
	if _, err := c.WriteFile("log4j.properties", zookeeperLog); err != nil {
		return Server{}, err
	}
	// -Xrs leaves SIGQUIT its plain effect: that is what ends the companion when we are killed.
	err = c.Run(ctx, java, "-Xrs", "-Dzookeeper.jmx.log4j.disable=true", "-cp", c.Dir()+":"+zookeeperJar,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	if err != nil {
		return Server{}, err
	}
	var about string
	err = await(ctx, c, address, func(conn net.Conn) bool {
		about = zookeeperVersion(conn)
		return about != ""
	})
	return Server{
		Kind: ZooKeeper, Address: address,
		About: "ZooKeeper " + about + ", one server, its defaults but for a tick of 0.5 s: the log is synced before it answers",
	}, err
}

// zookeeperVersion asks a server that is ready; the answer is empty before.
func zookeeperVersion(conn net.Conn) string {
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return ""
	}
	reply, err := io.ReadAll(conn)
	if err != nil {
		return ""
	}
	_, after, found := bytes.Cut(reply, []byte("Zookeeper version: "))
	if !found {
		return ""
	}
	version, _, _ := strings.Cut(firstLine(string(after)), "-")
	return version
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSuffix(line, "\r")
}
