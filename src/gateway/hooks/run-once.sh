#!/bin/sh
# Usage: run-once.sh DIRECTORY COMMAND
# Runs a command once for each directory, however often it is called. Later calls wait for the first run and return its exit
# code. The command reads request.json, and its output is kept in `output`. The exit code is 124 if the command was started but
# killed before it ended, and 125 if the directory cannot be used.
cd "$1" || exit 125
# The files are private, but the command gets the umask of the gateway.
mask=$(umask)
umask 077
exec 9>>lock
flock 9 || exit 125
[ -f outcome ] && exit "$(cat outcome)"
[ -f started ] && exit 124
echo "$$" >started
(umask "$mask" && exec sh -c "$2") <request.json >output 2>&1 9>&-
code=$?
echo "$code" >outcome.new
mv outcome.new outcome
exit "$code"
