#!/bin/sh
# usage: make.sh DIST DIRECTORY   makes a guest for run.sh as root, in a new directory: a disk with Debian 12, systemd and the daemon, its
# kernel and its initrd.
set -eu
here=$(cd "${0%/*}" && pwd)
dist=$1 directory=$2
mkdir "$directory"
root=$directory/root
packages=$(tr '\n' , <"$here/../../systemd/image/packages.txt")
mmdebstrap --quiet --variant=minbase --include="${packages}linux-image-cloud-amd64,initramfs-tools,udev" bookworm "$root"
sh "$dist/install/install.sh" "$dist" "$root"
# The guest of qemu's user network has this address.
printf '%s\n' '[Match]' 'Name=e*' '[Network]' 'Address=10.0.2.15/24' 'Gateway=10.0.2.2' >"$root/etc/systemd/network/qemu.network"
ln -sf /usr/lib/systemd/system/systemd-networkd.service "$root/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
cp "$root"/boot/vmlinuz-* "$directory/vmlinuz"
cp "$root"/boot/initrd.img-* "$directory/initrd"
truncate -s 2G "$directory/disk.ext4"
mkfs.ext4 -q -d "$root" "$directory/disk.ext4"
qemu-img convert -O qcow2 "$directory/disk.ext4" "$directory/disk.qcow2"
rm -rf "$root" "$directory/disk.ext4"
