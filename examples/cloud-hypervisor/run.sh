#!/bin/sh
# usage: run.sh   boots a guest under Cloud Hypervisor, pauses it into a snapshot, ends the hypervisor, and resumes it. In this directory are
# vmlinux, disk.raw with the daemon, and tools.ext4 of examples/tools-drive. The host has the interface tap0 with 172.16.0.1/30.
# This follows Cloud Hypervisor's document snapshot_restore.md; nobody has run it.
set -eu
cd "${0%/*}"
ENVD=http://172.16.0.2:49983 TOKEN=${TOKEN:-secret}
. ../steps.sh

socket=cloud-hypervisor.sock
remote() { ch-remote --api-socket="$socket" "$@"; }

cloud-hypervisor --api-socket "$socket" --cpus boot=2 --memory size=1024M --kernel vmlinux \
  --cmdline 'root=/dev/vda console=hvc0 rw ip=172.16.0.2::172.16.0.1:255.255.255.252::eth0:off' \
  --disk path=disk.raw path=tools.ext4,readonly=on --net tap=tap0,mac=06:00:ac:10:00:02 &
init
start_work
freeze_and_collapse
# The snapshot: the machine stands still, then its memory and its state are written.
remote pause
mkdir -p snapshot
remote snapshot "file://$PWD/snapshot"
kill $!
wait $! || true

# The resume: a restored machine is paused.
rm -f "$socket"
cloud-hypervisor --api-socket "$socket" --restore "source_url=file://$PWD/snapshot" &
until [ -S "$socket" ]; do sleep 0.01; done
remote resume
init
show_work
