# The calls of a platform around a pause, in their order, for all recipes: `. steps.sh`, with the URL of the daemon in ENVD and the
# access token in TOKEN. docs/pausing.md explains them.

AUTH="X-Access-Token: $TOKEN"
# A signal ends a script by its trap of EXIT, which cleans up.
trap 'exit 1' HUP INT TERM

# 1. After a boot or a start, and again after each resume: the token, the clock, and the thaw.
init() {
  until curl -sf --max-time 1 "$ENVD/health"; do sleep 0.1; done
  until curl -sf --max-time 1 "$ENVD/init" --json "{\"accessToken\":\"$TOKEN\",\"timestamp\":\"$(date -u +%FT%T.%3NZ)\"}"; do
    sleep 0.1
  done
  echo 'init: done'
}

# 2. Before a pause. The snapshot follows at once, and after the resume comes init.
freeze_and_collapse() {
  curl -sS --fail-with-body -X POST "$ENVD/freeze?maxWaitMs=5000" -H "$AUTH" | sed 's/^/freeze: /'
  echo
  curl -sS --fail-with-body -X POST "$ENVD/collapse" -H "$AUTH" | sed 's/^/collapse: /'
  echo
}

# Something that survives the pause, and can be seen.
start_work() {
  curl -sS --fail-with-body -H "$AUTH" --max-time 10 "$ENVD/exec" --json '{"cmd":"/bin/sh","args":["-c","echo before the pause >/tmp/work"]}'
  echo
}
show_work() {
  curl -sS --fail-with-body -H "$AUTH" "$ENVD/files?path=/tmp/work"
}
