# The daemon replaces its program by itself, after the reload. Until then /proc names the earlier file, which the new one has replaced.
is_old() { case $(readlink "/proc/$pid/exe" || true) in *' (deleted)') ;; *) return 1 ;; esac; }
pid=$(systemctl show --property=MainPID --value "$unit")
waited=0
if systemctl reload "$unit"; then
  while is_old && [ "$waited" -lt 600 ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
fi
if is_old; then
  echo "@NAME@: the new version is installed, but the earlier one still runs, because it could not be replaced." >&2
  echo "@NAME@: 'journalctl -u @NAME@' says why. When that is mended: systemctl reload @NAME@" >&2
  exit 1
fi
