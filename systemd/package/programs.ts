/** A program that is packaged for distributions. */
export interface Packaged {
  /** Of the package, of the program and of its unit. */
  readonly name: string;
  readonly summary: string;
  /** Lines of at most 78 characters. */
  readonly description: readonly string[];
  /** The name of the file with its variables, in /etc. */
  readonly config: string;
  /** Whether Debian's package lets the unit start at the next boot. Packages of RPM leave that to the presets of the system. */
  readonly isEnabled: boolean;
  /** The command of systemctl(1) that puts a new version in place of a running one. */
  readonly renew: 'reload' | 'try-restart';
  /** What Debian's package depends on; null: on nothing, because the program brings its libraries. */
  readonly debianDepends: string | null;
  /** Files of the built directory, and their places in the file system. */
  readonly files: readonly (readonly [source: string, destination: string])[];
}

export const PACKAGED: readonly Packaged[] = [
  {
    name: 'envd',
    summary: 'agent inside a sandbox: commands, terminals and files',
    description: [
      'envd runs as root inside of a sandbox, mostly a virtual machine, and serves',
      'remote clients over HTTP: they start commands and terminals, transfer files,',
      'and watch directories. A platform freezes the commands before a pause.',
      '',
      'The package is for images of sandboxes. It starts the daemon at the next',
      'boot, not when it is installed: whoever calls /init first sets the token.',
    ],
    config: 'envd/envd.env',
    isEnabled: true,
    renew: 'reload',
    debianDepends: null,
    files: [
      ['install/etc/sysctl.d/envd.conf', 'usr/lib/sysctl.d/envd.conf'],
      [
        'install/etc/systemd/system/system.slice.d/envd.conf',
        'usr/lib/systemd/system/system.slice.d/envd.conf',
      ],
    ],
  },
  {
    name: 'envd-gateway',
    summary: 'gateway of a host to many sandboxes',
    description: [
      'envd-gateway is one host for many sandboxes: it passes requests on to the',
      'sandbox that they name, and calls a hook of the platform when the time of a',
      'sandbox is up.',
      '',
      'It starts when a key is in /etc/envd-gateway.env and the unit is enabled.',
    ],
    config: 'envd-gateway.env',
    isEnabled: false,
    renew: 'try-restart',
    // What the pinned Node is linked with.
    debianDepends: 'libatomic1, libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 8)',
    files: [['systemd/nginx.conf', 'usr/share/doc/envd-gateway/examples/nginx.conf']],
  },
];
