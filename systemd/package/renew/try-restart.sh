systemctl --no-block try-restart "$unit" >/dev/null || true
