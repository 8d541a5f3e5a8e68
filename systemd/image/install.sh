#!/bin/sh
# Puts the built daemon into the root file system of an image, or replaces the one that is there. docs/baking.md explains the changes.
# Everything is copied beside its place first, so that a failure changes nothing: the rest is renames and links.
set -eu
here=${0%/*}
[ "$here" != "$0" ] || here=.

usage() {
  [ $# = 0 ] || echo "install.sh: $1" >&2
  cat >&2 <<END
usage: sh install.sh [--init=INIT] DIST ROOT
  DIST  the built daemon: dist/ of the sources, or the directory 'envd' of an archive
  ROOT  the root file system of the image; / is that of this machine
  INIT  what starts the daemon: systemd, openrc, or none for your own. By default it is found in ROOT
END
  exit 2
}
fail() { echo "install.sh: $1" >&2; exit 1; }

init=
case ${1:-} in
  --init=systemd | --init=openrc | --init=none) init=${1#--init=}; shift ;;
  -*) usage "wanted --init=systemd, --init=openrc or --init=none, found '$1'" ;;
esac
[ $# = 2 ] || usage "wanted DIST and ROOT, found $# arguments"
dist=$1
# An empty text is what an unset variable leaves: it must not stand for this machine.
[ -n "$2" ] || usage 'ROOT is empty'
root=${2%/}
[ -x "$dist/bin/envd" ] || fail "there is no built daemon in '$dist': it has no bin/envd"
[ -d "$root/" ] || fail "there is no directory '$2'"
if [ -z "$init" ]; then
  if [ -e "$root/usr/lib/systemd/systemd" ] || [ -e "$root/lib/systemd/systemd" ]; then init=systemd
  elif [ -e "$root/sbin/openrc" ] || [ -e "$root/usr/sbin/openrc" ]; then init=openrc
  else init=none
  fi
fi

# Files that wait for their names, as paths below ROOT, which have no spaces.
new=$root/opt/envd.new.$$ old=$root/opt/envd.old.$$ staged=
clean_up() {
  status=$?
  rm -rf "$new"
  [ -e "$root/opt/envd" ] || [ ! -e "$old" ] || mv "$old" "$root/opt/envd"
  rm -rf "$old"
  for file in $staged; do rm -f "$root/$file.envd-new"; done
  [ $status = 0 ] || echo "install.sh: $outcome" >&2
}
outcome='nothing was installed'
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
stage() {
  mkdir -p "$root/${2%/*}"
  staged="$staged $2"
  cp "$1" "$root/$2.envd-new"
}

mkdir -p "$root/opt"
cp -R "$dist" "$new"
stage "$here/etc/sysctl.d/envd.conf" etc/sysctl.d/envd.conf
case $init in
  systemd)
    stage "$dist/systemd/envd.service" etc/systemd/system/envd.service
    for file in $(cd "$here" && find etc -type f ! -path 'etc/sysctl.d/*'); do stage "$here/$file" "$file"; done
    ;;
  openrc)
    stage "$here/envd.openrc" etc/init.d/envd
    chmod 755 "$root/etc/init.d/envd.envd-new"
    ;;
esac

[ ! -e "$root/opt/envd" ] || mv "$root/opt/envd" "$old"
mv "$new" "$root/opt/envd"
outcome='the daemon was replaced, but not all files around it: run the same command again'
for file in $staged; do mv "$root/$file.envd-new" "$root/$file"; done
staged=

# link TARGET PATH
link() {
  mkdir -p "$root/${2%/*}"
  ln -sfn "$1" "$root/$2"
}
case $init in
  systemd)
    link /etc/systemd/system/envd.service etc/systemd/system/basic.target.wants/envd.service
    while read -r unit; do link /dev/null "etc/systemd/system/$unit"; done <"$here/masked-units.txt"
    ;;
  openrc) link /etc/init.d/envd etc/runlevels/default/envd ;;
esac
link /opt/envd/bin/envd usr/local/bin/envd
# The manual pages and completions are found there by man, bash, zsh and fish.
for file in $(cd "$dist" && find share -type f); do link "/opt/envd/$file" "usr/local/$file"; done
case $init in
  none) echo "installed in $root/opt/envd; start /opt/envd/bin/envd-supervise from your init" ;;
  *) echo "installed in $root/opt/envd; $init starts it at the next boot" ;;
esac
