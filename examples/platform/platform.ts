import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readdirSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { GATEWAY_ADDRESS } from './network.ts';
import { buildRoot } from './root.ts';
import type { Settings } from './settings.ts';
import { removeTree, run } from './tools.ts';

/**
 * The first process in the namespaces. The gateway, the hooks, the sandboxes, their mounts and their links are in them, too, so the
 * kernel ends all of it with this process. The sysfs of the machine may be read-only, which no container could mount.
 */
const FIRST_PROCESS = `
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo 0 >/proc/sys/net/ipv4/ip_forward
ip link set lo up
ip address add "$1/32" dev lo
shift
"$@" & wait $!`;

/** Removes the cgroups of sandboxes, which are empty by then. */
const REMOVE_CGROUPS = `
mount -t cgroup2 cgroup2 /sys/fs/cgroup
[ ! -d "$0" ] || find "$0" -depth -type d -exec rmdir {} +`;

export interface PlatformOptions {
  readonly backend: Settings['backend'];
  readonly accelerator: Settings['accelerator'];
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** For the root file system and, below, the files of each run. */
  readonly directory: string;
  /** The key of the platform; null: a new one. */
  readonly key: string | null;
  /** Hosts `<port>-<id>.<domain>` name sandboxes. */
  readonly domain: string;
  /** The most memory of one sandbox, in MiB. */
  readonly memory: number;
  /** Debian packages that sandboxes have, too. */
  readonly packages: readonly string[];
  /** The built daemon. */
  readonly daemon: string;
  /** The command of the gateway, and more flags for it. */
  readonly gateway: readonly string[];
  readonly flags: readonly string[];
  readonly say: (text: string) => void;
}

/** What `inside.ts` gets with the socket. */
export interface Start extends Pick<PlatformOptions, 'gateway' | 'flags' | 'domain'> {
  readonly settings: Settings;
  readonly key: string;
}

/** A gateway with hooks that make sandboxes on this machine. They end with it. */
export class Platform implements AsyncDisposable {
  readonly url: string;
  readonly key: string;
  /** Whether the kernel limits the memory of sandboxes. */
  readonly isLimited: boolean;
  /** The files of this run. */
  readonly directory: string;
  /** Resolves when it has ended, also by itself. */
  readonly ended: Promise<unknown>;
  readonly #inside: ChildProcess;

  private constructor(
    { url, key, directory }: Pick<Platform, 'url' | 'key' | 'directory'>,
    inside: ChildProcess,
    isLimited: boolean,
  ) {
    this.url = url;
    this.key = key;
    this.directory = directory;
    this.isLimited = isLimited;
    this.#inside = inside;
    this.ended = once(inside, 'exit');
  }

  /** Resolves when the gateway serves. Throws when this is not root, when the port is taken, and with what a program complains about. */
  static async start(options: PlatformOptions): Promise<Platform> {
    if (process.geteuid?.() !== 0)
      throw new Error('it makes containers and networks, so it must run as root');
    const { backend, accelerator, key, daemon, memory, gateway, flags, domain, say } = options;
    const image = await buildImage(options);
    const server = createServer();
    await once(server.listen({ host: options.host, port: options.port }), 'listening');
    const { port } = server.address() as AddressInfo;
    // The port is taken, so no other platform uses these.
    const directory = join(options.directory, String(port));
    const cgroup = cgroupOf(port);
    removeRemains(directory, cgroup);
    await removeOthersRemains(options.directory);
    // Users of containers need a way to their files.
    for (const each of [directory, join(directory, 'sandboxes'), join(directory, 'places')])
      mkdirSync(each, { recursive: true, mode: 0o711 });
    const start: Start = {
      settings: { backend, accelerator, directory, cgroup, image, daemon, memory },
      key: key ?? `e2b_${randomBytes(20).toString('hex')}`,
      gateway,
      flags,
      domain,
    };
    const inside = spawnInside();
    inside.once('exit', () => removeRemains(directory, cgroup));
    inside.send(start, server);
    const isLimited = await untilReady(inside, say);
    const url = urlOf(server);
    server.close();
    if (isLimited === null) throw new Error('it has ended before it was ready');
    return new Platform({ url, key: start.key, directory }, inside, isLimited);
  }

  /** Ends all sandboxes and the gateway. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#inside.connected) this.#inside.send('stop');
    await this.ended;
  }
}

/** What `inside.ts` tells. */
interface Told {
  readonly say?: string;
  /** That it is ready, and whether sandboxes are limited. */
  readonly isLimited?: boolean;
}

/** Returns whether sandboxes are limited; null: it has ended. */
async function untilReady(inside: ChildProcess, say: (text: string) => void): Promise<boolean | null> {
  const { promise, resolve } = Promise.withResolvers<boolean | null>();
  inside.once('exit', () => resolve(null));
  inside.on('message', (told: Told) => {
    if (told.say !== undefined) say(told.say);
    if (told.isLimited !== undefined) resolve(told.isLimited);
  });
  return promise;
}

/** The file systems that sandboxes begin with. */
async function buildImage({
  backend,
  directory,
  packages,
  memory,
  accelerator,
  say,
}: PlatformOptions): Promise<string> {
  if (backend === 'container') return buildRoot(directory, packages, say);
  const { buildMachineImage } = await import('./machine-image.ts');
  return buildMachineImage(directory, memory, accelerator);
}

function spawnInside(): ChildProcess {
  const namespaces = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
  const program = [process.execPath, join(import.meta.dirname, 'inside.ts')];
  const args = [...namespaces, 'sh', '-euc', FIRST_PROCESS, 'sh', GATEWAY_ADDRESS, ...program];
  // In a group of its own, as a terminal sends Ctrl+C to all of a group.
  return spawn('unshare', args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], detached: true });
}

/** Removes what a platform leaves behind when all of its processes have ended. */
function removeRemains(directory: string, cgroup: string): void {
  run('unshare', ['--mount', 'sh', '-ec', REMOVE_CGROUPS, cgroup]);
  removeTree(directory);
}

/** The cgroup of the platform that has this port. */
function cgroupOf(port: number): string {
  return `/sys/fs/cgroup/envd-platform-${port}`;
}

/** Removes what platforms at other ports have left behind that were killed: cgroups, and registries with tokens. */
async function removeOthersRemains(directory: string): Promise<void> {
  const ports = readdirSync(directory).filter((name) => /^\d+$/.test(name));
  for (const port of ports.map(Number)) {
    const server = createServer();
    // A platform that runs has its port.
    const isFree = await once(server.listen(port), 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    removeRemains(join(directory, String(port)), cgroupOf(port));
    server.close();
  }
}

function urlOf(server: Server): string {
  const { address, port, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
