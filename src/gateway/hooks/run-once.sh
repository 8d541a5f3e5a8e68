#!/bin/sh
# Runs a command once for each directory, however often this script is called for it and whoever called it has died:
# a second call waits for the first one's run and has its exit code. Usage: run-once.sh DIRECTORY COMMAND.
# The command reads request.json; what it writes is kept in `output`. 124: it was started and never ended.
cd "$1" || exit 125
exec 9>>lock
flock 9 || exit 125
[ -f outcome ] && exit "$(cat outcome)"
[ -f started ] && exit 124
echo "$$" >started
sh -c "$2" <request.json >output 2>&1 9>&-
code=$?
echo "$code" >outcome.new
mv outcome.new outcome
exit "$code"
