#!/bin/sh
# usage: make.sh DIST IMAGE   makes a disk with the daemon, which guests mount read-only at /mnt/tools: IMAGE, an ext4 file system.
set -eu
dist=$1 image=$2
size=$(du -sm --apparent-size "$dist" | cut -f1)
rm -f "$image"
truncate -s "$((size + 24))M" "$image"
mkfs.ext4 -q -d "$dist" -O ^has_journal -E root_owner=0:0 "$image"
