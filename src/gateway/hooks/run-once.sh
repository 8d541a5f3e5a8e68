#!/bin/sh
# Usage: run-once.sh DIRECTORY COMMAND
# Runs a command once for each directory, however often it is called. Later calls wait for the first run and return its exit
# code. The command reads request.json, and the first 256 KiB of its output are kept in `output`. The exit code is 124 if the command
# was started but killed before it ended, and 125 if the directory cannot be used.
cd "$1" || exit 125
# The files are private, but the command gets the umask of the gateway.
mask=$(umask)
umask 077
exec 9>>lock
flock 9 || exit 125
[ -f outcome ] && exit "$(cat outcome)"
[ -f started ] && exit 124
echo "$$" >started
mkfifo pipe || exit 125
# A limit of the command itself would also count for what it writes elsewhere. The unit of the limit is 512 bytes.
exec 8>copying
flock 8
(trap '' XFSZ && ulimit -f 512 && cat >output && exit; exec cat >/dev/null) <pipe 2>/dev/null 9>&- &
exec 8>&-
(umask "$mask" && exec sh -c "$2") <request.json >pipe 2>&1 9>&-
code=$?
# The copy has ended, unless the command has left a process that keeps the pipe open. It must not be waited for.
flock -w 1 copying true
echo "$code" >outcome.new
mv outcome.new outcome
exit "$code"
