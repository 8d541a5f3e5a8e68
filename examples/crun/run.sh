#!/bin/sh
# usage: run.sh IMAGE ROOT   runs the daemon in a strict container by crun(1), as root: an init container with the archive of our image
# (envd-VERSION-linux-ARCH.oci.tar) copies the daemon to a directory, which the container of the sandbox, with the system in ROOT,
# sees read-only. That one has no capabilities, a read-only root and no cgroups: it serves, and cannot be frozen.
set -eu
here=$(cd "${0%/*}" && pwd)
image=$1 root=$2
port=${ENVD_PORT:-49983}
ENVD=http://127.0.0.1:$port TOKEN=${TOKEN:-secret}
. "$here/../steps.sh"

work=$(mktemp -d)
crun() { command crun --root "$work/state" --cgroup-manager=disabled "$@"; }
end() {
  crun delete --force envd-sandbox 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
mkdir -p "$work/init/rootfs" "$work/sandbox" "$work/tools"

# The file system of the image is its layers, one over the other.
skopeo copy --quiet "oci-archive:$image" "dir:$work/image"
for layer in $(skopeo inspect --format '{{range .Layers}}{{println .}}{{end}}' "dir:$work/image"); do
  tar -xf "$work/image/${layer#sha256:}" -C "$work/init/rootfs"
done
sed "s,\"source\": \"tools\",\"source\": \"$work/tools\"," "$here/init.json" >"$work/init/config.json"
crun run --bundle "$work/init" envd-init

ln -s "$root" "$work/sandbox/rootfs"
sed "s,\"source\": \"tools\",\"source\": \"$work/tools\",; s,PORT,$port," "$here/sandbox.json" >"$work/sandbox/config.json"
crun run --detach --bundle "$work/sandbox" envd-sandbox </dev/null >"${LOG:-/dev/null}" 2>&1

init
start_work
# Without cgroups there is no freeze: pause the container as a whole, such as by `crun pause`, or the machine that it is on.
curl -sS -X POST "$ENVD/freeze" -H "$AUTH"
echo
show_work
