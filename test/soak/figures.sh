# usage: set -- PID MANAGER CGROUPS, before this text.
# What a daemon holds, whose manager that is and whose cgroups are below that path: a value a line, in the order of figures.ts.
set -e
cd "/proc/$1"
# proc_pid_status(5), in KiB. Of a process that is ending it tells no memory.
sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' status
sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' status
# Of proc_pid_fd(5); of these the TCP connections that neither end has closed, by proc_net(5); and memfds.
{ ls -l fd; cat net/tcp net/tcp6; } 2>/dev/null | awk '
  / -> / { files++ }
  / -> \/memfd:/ { memfds++ }
  match($0, /socket:\[[0-9]+/) { own[substr($0, RSTART + 8, RLENGTH - 8)] }
  $4 == "01" && $10 in own { connections++ }
  END { print files - connections; print connections + 0; print memfds + 0 }'
ls task | wc -l
# Of inotify(7), by proc_pid_fdinfo(5).
cat fdinfo/* 2>/dev/null | grep -c '^inotify wd:' || true
find "$3" -mindepth 1 -type d 2>/dev/null | wc -l
ps -o stat= --ppid "$1" --ppid "$2" | grep -c '^Z' || true
ls "/proc/$2/fd" | wc -l
