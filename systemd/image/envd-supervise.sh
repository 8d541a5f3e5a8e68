#!/bin/sh
# usage: envd-supervise [FLAG…]   starts the daemon with these flags and the variables of /etc/envd/envd.env, and again whenever it
# ends, except after exit code 2: the loop for systems without systemd. SIGTERM, SIGINT and SIGHUP end both, SIGUSR2 upgrades the
# daemon, and SIGQUIT replaces it. The limits of this loop are in docs/baking.md.
set -u
self=$0
[ ! -L "$self" ] || self=$(command -p readlink -f -- "$self")
program=${self%/*}/envd
say() { echo "envd-supervise: $*" >&2; }

# The lines have the form of systemd's EnvironmentFile=, without its escapes.
file=${ENVD_ENV_FILE:-/etc/envd/envd.env}
unset ENVD_ENV_FILE
if [ -r "$file" ]; then
  while IFS= read -r line || [ -n "$line" ]; do
    name=${line%%=*} value=${line#*=}
    case $line in
      '' | '#'* | ';'*) continue ;;
      *=*) ;;
      *) say "'$file' has a line without '=': it is not used"; continue ;;
    esac
    case $name in
      '' | [0-9]* | *[!A-Za-z0-9_]*) say "'$file' sets '$name', which is no name of a variable: it is not used"; continue ;;
    esac
    case $value in
      \"*\") value=${value#\"} value=${value%\"} ;;
      \'*\') value=${value#\'} value=${value%\'} ;;
    esac
    export "$name=$value"
  done <"$file"
fi

# Output that is to last (keep_output) is in files without names, so this directory stays as it is.
export "ENVD_OUTPUT_DIRECTORY=${ENVD_OUTPUT_DIRECTORY-/var/tmp}"

# An init that drops the output names a command that gets it, such as logger(1).
logger=${ENVD_SUPERVISE_LOGGER:-} fifo=/run/envd-log.$$
unset ENVD_SUPERVISE_LOGGER
if [ -n "$logger" ] && mkfifo -m 600 "$fifo"; then
  # shellcheck disable=SC2086
  $logger <"$fifo" &
  exec >"$fifo" 2>&1
  rm -f "$fifo"
fi

# The kernel kills the workload first when memory runs out, not this loop. Only root may say so.
{ echo -1000 >/proc/self/oom_score_adj; } 2>/dev/null || :

child='' stopping='' passed=''
pass() { [ -z "$child" ] || { passed=1; kill -"$1" "$child" 2>/dev/null; }; }
for signal in TERM INT HUP; do
  # shellcheck disable=SC2064
  trap "stopping=1; pass $signal" $signal
done
for signal in QUIT USR2; do
  # shellcheck disable=SC2064
  trap "pass $signal" $signal
done

while [ -z "$stopping" ]; do
  passed=''
  "$program" "$@" &
  child=$!
  # A signal may have come before the child was known.
  [ -z "$stopping" ] || [ -n "$passed" ] || pass TERM
  # A signal ends `wait`, and its status is that of the child only when the child is gone.
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  child=''
  [ -z "$stopping" ] || exit "$code"
  [ "$code" != 2 ] || { say 'a setting or a requirement is wrong, as the log says: the daemon is not started again'; exit 2; }
  say "the daemon ended with exit code $code, and is started again"
  sleep 0.1 2>/dev/null || sleep 1
done
