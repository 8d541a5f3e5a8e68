#!/bin/busybox sh
# The first program of the guest: the modules that its disk and network need, a static address, the real system.
PATH=/bin
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do [ ! -e "$module" ] || busybox insmod "$module"; done
busybox ip link set lo up
busybox ip addr add 10.0.2.15/24 dev eth0
busybox ip link set eth0 up
busybox ip route add default via 10.0.2.2
until [ -b /dev/vda ]; do busybox sleep 0.1; done
busybox mount -t ext4 /dev/vda /new
exec busybox switch_root /new /sbin/init
