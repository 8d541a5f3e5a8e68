{
  "targets": [
    {
      "target_name": "envd",
      "sources": ["<!@(ls src/*.c)"],
      "defines": ["_GNU_SOURCE", "NAPI_VERSION=9"],
      "cflags": ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"],
      # Threads of ours may outlive the last environment that has loaded the addon: its code stays.
      "ldflags": ["-Wl,-z,nodelete"]
    }
  ]
}
