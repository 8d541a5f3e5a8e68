#!/bin/sh
# usage: run.sh DIRECTORY   boots the guest of make.sh under qemu, pauses it into a snapshot of its disk, ends qemu, and resumes it.
set -eu
here=$(cd "${0%/*}" && pwd)
directory=$1
port=${ENVD_PORT:-49983}
ENVD=http://127.0.0.1:$port TOKEN=${TOKEN:-secret}
. "$here/../steps.sh"

monitor=$directory/monitor
rm -f "$monitor.in" "$monitor.out"
mkfifo "$monitor.in" "$monitor.out"
qemu=
trap '[ -z "$qemu" ] || kill $qemu 2>/dev/null || true' EXIT

# boot [OPTION…]: starts qemu, with KVM where there is one, or with the accelerator in ACCEL. What is written to descriptor 3 is a command of its monitor.
boot() {
  qemu-system-x86_64 -machine "q35,accel=${ACCEL:-kvm:tcg}" -m 1024 -smp 2 -nodefaults -display none -no-reboot \
    -kernel "$directory/vmlinuz" -initrd "$directory/initrd" -append 'root=/dev/vda rw console=ttyS0 quiet' \
    -drive "file=$directory/disk.qcow2,if=virtio" -serial "file:$directory/console" \
    -netdev "user,id=n,hostfwd=tcp:127.0.0.1:$port-:49983" -device virtio-net-pci,netdev=n \
    -chardev "pipe,id=monitor,path=$monitor" -mon chardev=monitor "$@" &
  qemu=$!
  exec 3>"$monitor.in"
  cat "$monitor.out" >"$directory/monitor.log" &
}

boot
init
start_work
freeze_and_collapse
# The snapshot: memory and devices go into the disk's file. `quit` is executed when it is complete.
printf '%s\n' stop 'savevm paused' quit >&3
wait "$qemu"
exec 3>&-
echo 'snapshot: taken'
# The resume, with a new qemu.
boot -loadvm paused
init
show_work
printf 'quit\n' >&3
wait "$qemu"
