import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** How systemd runs a program. */
export interface Service {
  /** The name of the file with its variables, in /etc. */
  readonly config: string;
  /** Whether Debian's package lets the unit start at the next boot. Packages of RPM leave that to the presets of the system. */
  readonly isEnabled: boolean;
  /** The command of systemctl(1) that puts a new version in place of a running one. */
  readonly renew: 'reload' | 'try-restart';
}

/** A program that is packaged for distributions. */
export interface Packaged {
  /** Of the package, of the program and of its unit. */
  readonly name: string;
  /** The directory that build.ts makes. */
  readonly directory: string;
  readonly summary: string;
  /** Lines of at most 78 characters. */
  readonly description: readonly string[];
  /** null: it is no service. */
  readonly service: Service | null;
  /** Whether the program brings its libraries, and needs none of the system. */
  readonly hasLibraries: boolean;
  /** The fields of Debian's package that name others. */
  readonly relations: readonly string[];
  /** Files of the built directory, and their places in the file system. */
  readonly files: readonly (readonly [source: string, destination: string])[];
}

export const PACKAGED: readonly Packaged[] = [
  {
    name: 'envd',
    directory: 'dist',
    summary: 'agent inside a sandbox: commands, terminals and files',
    description: [
      'envd runs as root inside of a sandbox, mostly a virtual machine, and serves',
      'remote clients over HTTP: they start commands and terminals, transfer files,',
      'and watch directories. A platform freezes the commands before a pause.',
      '',
      'The package is for images of sandboxes. It starts the daemon at the next',
      'boot, not when it is installed: whoever calls /init first sets the token.',
    ],
    service: { config: 'envd/envd.env', isEnabled: true, renew: 'reload' },
    hasLibraries: true,
    relations: ['Suggests: nfs-common'],
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
    directory: 'dist-gateway',
    summary: 'gateway of a host to many sandboxes',
    description: [
      'envd-gateway is one host for many sandboxes: it passes requests on to the',
      'sandbox that they name, and calls a hook of the platform when the time of a',
      'sandbox is up.',
      '',
      'It starts when a key is in /etc/envd-gateway.env and the unit is enabled.',
    ],
    service: { config: 'envd-gateway.env', isEnabled: false, renew: 'try-restart' },
    hasLibraries: false,
    // What the pinned Node is linked with.
    relations: ['Depends: libatomic1, libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 8)'],
    files: [['systemd/nginx.conf', 'usr/share/doc/envd-gateway/examples/nginx.conf']],
  },
  {
    name: 'envctl',
    directory: 'dist-envctl',
    summary: 'command line for sandboxes: commands, terminals and files',
    description: [
      'envctl is for people who work in a sandbox: it runs commands and terminals in',
      'it, copies files, forwards ports, and shows a console in a browser.',
      '',
      'The package is for the machine of a person. It brings all that it needs.',
    ],
    service: null,
    hasLibraries: true,
    relations: [],
    files: [],
  },
];

/** Returns the lines of a shell script that put the new version of a program, whose unit is `$unit`, in place of the running one. */
export function renewalOf(name: string, { renew }: Service): string {
  const script = fileURLToPath(new URL(`renew/${renew}.sh`, import.meta.url));
  return readFileSync(script, 'utf8').replaceAll('@NAME@', name).trimEnd();
}
