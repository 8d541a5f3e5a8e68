{
  "target_defaults": {
    "include_dirs": ["src"],
    # One list of flags for this build, for arm64 and for editors; the latter two need its directories, too.
    "cflags": ["<!@(grep -v ^-I compile_flags.txt)"]
  },
  "targets": [
    {
      "target_name": "envd",
      "sources": ["<!@(find src -name '*.c' -not -path 'src/starter/*' | sort)"],
      # Threads of ours may outlive the last environment that has loaded the addon: its code stays.
      "ldflags": ["-Wl,-z,nodelete"]
    },
    {
      "target_name": "envd-start",
      "type": "executable",
      "sources": ["src/starter/main.c"],
      # A fork copies the mappings, of which each library has five: static, a fork takes a fifth less.
      "ldflags": ["-static-pie"]
    }
  ]
}
