# shellcheck shell=bash
# The commands of .ci/run's steps, where one line is not enough. Each runs in a shell of its own,
# from the top of the tree, with `set -euo pipefail`. A line that begins with "note: " is printed
# with the step.

# packages installs the Debian packages of which something is missing. To add one: a line with what
# it brings, a command or a file, and its name.
packages() {
  local wanted=() what package
  while read -r what package; do
    command -v "$what" >/dev/null || compgen -G "$what" >/dev/null || wanted+=("$package")
  done <<'END'
git                                git
gcc                                gcc
/usr/include/stdlib.h              libc6-dev
/etc/ssl/certs/ca-certificates.crt ca-certificates
pgrep                              procps
jq                                 jq
shellcheck                         shellcheck
/usr/lib/postgresql/*/bin/initdb   postgresql
/usr/sbin/pgbouncer                pgbouncer
/usr/lib/*/faketime/libfaketime.so.1 libfaketime
npm                                npm
dockerd                            docker.io
etcd                               etcd-server
patroni                            patroni
/usr/share/java/zookeeper.jar      zookeeper
redis-server                       redis-server
END
  if ((${#wanted[@]} == 0)); then
    echo "note: nothing to install"
    return
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q -o Acquire::Retries=3 update
  apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${wanted[@]}"
  echo "note: installed ${wanted[*]}"
}

# modules prints the directory of each module beside the root and the tools.
modules() {
  find . \( -name node_modules -o -name testdata -o -path ./tools \) -prune -o \
    -name go.mod -not -path ./go.mod -printf '%h\n' | sort
}

# tool MODULE NAME prints the path of a tool, and builds it where Go's cache does not have it.
tool() { go tool -modfile="$1/go.mod" -n "$2"; }

formatted() {
  local files
  files=$(gofmt -l .)
  [ -n "$files" ] || return 0
  printf 'gofmt would change %s\n' "$files"
  gofmt -d .
  return 1
}

tidy() {
  local dir bad=0
  for dir in . tools tools/lint $(modules); do
    (cd "$dir" && go mod tidy -diff) || bad=1
  done
  return "$bad"
}

generated() { "$(tool tools sqlc)" diff; }

lint_format() { "$(tool tools/lint golangci-lint)" fmt --diff; }

lint() {
  local dir config=$PWD/.golangci.yml linter bad=0
  linter=$(tool tools/lint golangci-lint)
  for dir in . $(modules); do
    (cd "$dir" && "$linter" run --config "$config") || bad=1
  done
  return "$bad"
}

# tested DIR FLAGS...: go test, and no test may have been skipped.
tested() {
  local log skipped
  log=$(mktemp)
  (cd "$1" && go test -v "${@:2}") 2>&1 | tee "$log"
  echo "note: $(grep -cE '^ *--- PASS' "$log") tests and subtests"
  # A test that has to be skipped is let through by its name, in a line here that says why.
  # TestChild...: bodies of processes that other tests start. ...Conforms/...: what fencetest does not
  # ask of a resource that does not promise it.
  skipped=$(sed -nE 's/^ *--- SKIP: ([^ ]+).*/\1/p' "$log" | sort -u |
    grep -vE '^(TestChild(Fails|Leaks|UsesPool)|Test[A-Za-z]+Conforms/.*)$' || true)
  rm "$log"
  [ -n "$skipped" ] || return 0
  printf 'skipped: %s\n' "${skipped//$'\n'/, }"
  return 1
}

# on_version MAJOR: the suites that run on a database, on another version of Postgres, which npm brings.
on_version() {
  PGLEASE_PG_VERSION=$1 tested . -short -timeout 19m ./internal/bounded ./internal/postgres ./internal/torture/sequences \
    ./internal/torture/failover ./migrations ./pglease ./pglease/internal/... ./pglease/fence ./pglease/jobs ./reportstore
}

# fuzzed TIME TARGET DIR: one target. At the end of the time Go may report its own deadline as a failure,
# without an input that failed: that alone is no reason not to run it again, and returns 75.
fuzzed() {
  local log
  log=$(mktemp)
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$1" "$3" >"$log" 2>&1 && { rm "$log"; return; }
  tail -n 100 "$log"
  ! grep -q 'Failing input written' "$log" || exit 1
  grep -q 'context deadline exceeded' "$log" || exit 1
  return 75
}

# fuzz TIME: every target, for so long each. An input that fails is kept below testdata.
fuzz() {
  local file target
  while IFS=: read -r file target; do
    fuzzed "$1" "$target" "$(dirname "$file")" || fuzzed "$1" "$target" "$(dirname "$file")"
  done < <(grep -rHoP --include='*_test.go' '^func \KFuzz\w+' . | sort)
  echo "note: $(grep -rhoP --include='*_test.go' '^func \KFuzz\w+' . | wc -l) targets"
}

# containers: the suite that needs a container engine, on one of its own. Its image is made of this
# machine's files. The engine is stopped whatever happens.
containers() {
  local dir engine
  dir=$(mktemp -d)
  export DOCKER_HOST=unix://$dir/socket
  dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" -H "$DOCKER_HOST" >"$dir/log" 2>&1 &
  engine=$!
  # shellcheck disable=SC2064 # their values now
  trap "kill $engine 2>/dev/null; wait $engine || true; rm -rf '$dir'" EXIT
  for _ in $(seq 60); do
    ! docker version >/dev/null 2>&1 || break
    if ! kill -0 "$engine" 2>/dev/null; then break; fi
    sleep 1
  done
  docker version || { tail -n 50 "$dir/log" && return 1; }
  internal/containers/mkimage pglease-postgres
  # Without a helper container that would have to be pulled, and with ports looked for on this host
  # though it may be a container itself.
  export TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1
  PGLEASE_CONTAINER_IMAGE=pglease-postgres tested internal/containers -timeout 14m ./...
}

# raced: everything but the plans, which run nothing of ours beside anything else, and the planted
# bugs, which are found by what they do to a history.
raced() {
  local packages
  mapfile -t packages < <(go list ./... | grep -vE '/internal/(plans|torture)$')
  tested . -race -timeout 24m "${packages[@]}"
}

# demo FILTER FLAGS...: plays the demo and holds its report to a filter of jq.
demo() {
  local report
  report=$(mktemp)
  go run ./cmd/reportpublisher demo "${@:2}" --json | tee "$report"
  if ! jq -e "$1" "$report" >/dev/null; then
    echo "this is not true of the report: $1"
    return 1
  fi
  rm "$report"
}

# soak TIME: workers under faults, and their history without a violation.
soak() {
  local report
  report=$(mktemp)
  go run ./internal/torture/cmd/soak --for "$1" --json | tee "$report"
  jq -e '.violations | length == 0' "$report" >/dev/null
  rm "$report"
}

# peers measures each peer for a moment: all must be there, on real servers. The figures say nothing.
peers() {
  local report
  report=$(mktemp)
  (cd cmd/peerbench && go run . --for 1s --rounds 1 --json) | tee "$report"
  jq -e '(.missing | length) == 0 and (.peers | length) == 9' "$report" >/dev/null
  rm "$report"
}

# ours prints the ids of processes that were started with a path below the run's own directory.
ours() { pgrep -f -- "$TMPDIR/" || true; }

nothing_left() {
  local _
  for _ in $(seq 20); do
    [ -n "$(ours)" ] || return 0
    sleep 1
  done
  echo "still running:"
  ours | xargs -r ps -o pid,ppid,etimes,args -p
  return 1
}
