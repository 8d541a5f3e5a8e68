#!/bin/sh
# usage: run.sh   boots vm.json, pauses it into a snapshot, ends Firecracker, and resumes it. In this directory are vmlinux, disk.ext4,
# which examples/qemu/make.sh makes as a step, and tools.ext4 of examples/tools-drive. The host has the interface
# tap0 with 172.16.0.1/30. This follows Firecracker's documents getting-started.md and snapshot-support.md; nobody has run it.
set -eu
cd "${0%/*}"
ENVD=http://172.16.0.2:49983 TOKEN=${TOKEN:-secret}
. ../steps.sh

socket=firecracker.socket
api() { curl -sS --fail-with-body --unix-socket "$socket" -X "$1" "http://localhost/$2" -H 'Content-Type: application/json' -d "$3"; }
wait_for_socket() { until [ -S "$socket" ]; do sleep 0.01; done; }

rm -f "$socket"
firecracker --api-sock "$socket" --config-file vm.json &
init
start_work
freeze_and_collapse
# The snapshot: the machine stands still, then its memory and its state are written.
api PATCH vm '{"state":"Paused"}'
api PUT snapshot/create '{"snapshot_type":"Full","snapshot_path":"state","mem_file_path":"memory"}'
kill $!
wait $! || true

# The resume, with a new Firecracker. The memory is loaded as it is touched.
rm -f "$socket"
firecracker --api-sock "$socket" &
wait_for_socket
api PUT snapshot/load '{"snapshot_path":"state","mem_backend":{"backend_type":"File","backend_path":"memory"},"resume_vm":true}'
init
show_work
