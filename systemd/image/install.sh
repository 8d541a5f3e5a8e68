#!/bin/sh
# usage: systemd/image/install.sh DIST ROOT   puts the built daemon into the root file system of an image.
# It enables the daemon's unit, masks units that a sandbox does not need, because they would take most of the boot, and copies
# etc/, the configuration of other units.
set -eu
dist=$1
root=$2
units=$root/etc/systemd/system

mkdir -p "$root/opt" "$units/basic.target.wants"
rm -rf "$root/opt/envd"
cp -R "$dist" "$root/opt/envd"
cp "$dist/systemd/envd.service" "$units/envd.service"
ln -sf /etc/systemd/system/envd.service "$units/basic.target.wants/envd.service"
cp -R "${0%/*}/etc" "$root/"
while read -r unit; do ln -sf /dev/null "$units/$unit"; done <"${0%/*}/masked-units.txt"
