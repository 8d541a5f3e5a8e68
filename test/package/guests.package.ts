import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, inject, onTestFinished, test } from 'vitest';
import { BareRoot } from '../support/machine/bare-root.ts';
import { needs } from '../support/machine/needs.ts';
import { childrenOf } from '../support/machine/proc.ts';
import { scratch } from '../support/machine/scratch.ts';
import { artefact } from '../support/package/made.ts';
import { Remote } from '../support/package/remote.ts';
import { type Suite, System } from '../support/package/system.ts';
import { startDaemon } from '../support/programs/daemon.ts';
import { freePort } from '../support/servers/free-port.ts';

/*
 * What works in which guest, and the table of docs/compatibility.md that says so: the packages or the archive in fresh systems, on the
 * kernel of this machine. ENVD_GUEST_TABLE=write writes the table; otherwise it must be as it is.
 */

const DOCUMENT = fileURLToPath(new URL('../../docs/compatibility.md', import.meta.url));
const [BEGIN, END] = ['<!-- made by npm run test:package -->\n', '\n<!-- end -->'];

const COLUMNS = [
  'commands',
  'terminals',
  'files',
  'watches',
  'freeze',
  'collapse',
  'upgrade',
  'crash',
] as const;
type Column = (typeof COLUMNS)[number];

/** A daemon that runs in a guest. */
interface Running {
  readonly daemon: Remote;
  /** Puts the program of now in place of the running one. */
  upgrade(): void;
  /** Kills the daemon's process. */
  kill(): void;
}

const [BUSYBOX, MUSL] = ['busybox alone, read-only', 'busybox with musl'];
/** The rows of guests that were tried. */
const rows: (readonly string[])[] = [];
/** Guests that are wanted here, and whose roots no registry has that can be reached. */
const NOT_RUN = ['Alpine', 'Fedora', 'Arch'];

async function featuresOf({ daemon, upgrade, kill }: Running): Promise<Record<Column, string>> {
  const works = async (check: () => Promise<unknown>) => {
    await check();
    return 'yes';
  };
  await daemon.init();
  const commands = await works(async () => {
    const run = await daemon.call('/exec', '{"cmd":"/bin/sh","args":["-c","echo roses; exit 7"]}');
    expect(await run.json()).toMatchObject({ stdout: 'roses\n', exitCode: 7 });
  });
  const terminals = await works(async () => {
    expect(await daemon.inTerminal('/bin/sh', ['-c', 'stty size'])).toBe('17 91\r\n');
  });
  const upload = async () => {
    const response = await fetch(`${daemon.url}/files?path=/tmp/poem`, {
      method: 'POST',
      headers: { ...Remote.headers, 'content-type': 'application/octet-stream' },
      body: 'roses',
    });
    expect(response.status).toBe(200);
  };
  const watches = await works(async () => expect(await daemon.watched('/tmp', upload)).toContain('poem'));
  const files = await works(async () =>
    expect(await (await daemon.call('/files?path=/tmp/poem')).text()).toBe('roses'),
  );
  await daemon.remove('/tmp/poem');
  await daemon.start('cat', '/bin/cat');
  const freeze = await works(async () => {
    const frozen = (await (await daemon.call('/freeze?maxWaitMs=10000', '')).json()) as {
      requested: number;
      frozen: number;
    };
    expect(frozen.frozen).toBe(frozen.requested);
  });
  const collapse = await works(async () => expect((await daemon.call('/collapse', '')).status).toBe(200));
  expect((await daemon.call('/unfreeze', '')).status).toBe(204);
  const handover = await works(async () => {
    const started = await daemon.startedAt();
    upgrade();
    await daemon.untilReplaced(started);
    expect(await daemon.tags()).toEqual(['cat']);
  });
  const started = await daemon.startedAt();
  kill();
  // Without the descriptors of the one before, the next daemon has no token.
  await daemon.untilInit(started);
  const crash = (await daemon.tags()).length > 0 ? 'yes' : 'starts again; processes are lost';
  return { commands, terminals, files, watches, freeze, collapse, upgrade: handover, crash };
}

async function add(guest: string, init: string, way: string, running: Running): Promise<void> {
  const features = await featuresOf(running);
  rows.push([guest, init, way, ...COLUMNS.map((column) => features[column])]);
}

const DEBIAN: readonly (readonly [guest: string, suite: Suite])[] = [
  ['Debian 11', 'bullseye'],
  ['Debian 12', 'bookworm'],
  ['Debian 13', 'trixie'],
];

test.each(DEBIAN)('%s with systemd', async (guest, suite) => {
  needs('root', 'mounts', 'mmdebstrap', 'systemd-nspawn');
  const system = System.create(suite);
  onTestFinished(() => system[Symbol.asyncDispose]());
  const port = await freePort();
  system.run(`dpkg -i ${system.put(artefact(inject('artefacts'), /^envd_.*\.deb$/))}`);
  writeFileSync(join(system.root, 'etc/envd/envd.env'), settings(port));
  await system.boot();
  await add(guest, 'systemd', 'package', {
    daemon: new Remote(port),
    upgrade: () => void system.run('systemctl reload envd'),
    kill: () => void system.run('systemctl kill --signal=KILL --kill-who=main envd'),
  });
});

test('Debian 12 with OpenRC', async () => {
  needs('root', 'mounts', 'mmdebstrap', 'systemd-nspawn');
  const system = System.create('bookworm', ['openrc', 'bsdutils'], ['sysvinit-core', 'procps']);
  onTestFinished(() => system[Symbol.asyncDispose]());
  const port = await freePort();
  install(system.root);
  mkdirSync(join(system.root, 'etc/envd'), { recursive: true });
  writeFileSync(join(system.root, 'etc/envd/envd.env'), settings(port));
  await system.start();
  await add('Debian 12', 'OpenRC', 'archive', {
    daemon: new Remote(port),
    upgrade: () => void system.run('rc-service envd reload'),
    kill: () => void system.run('kill -9 $(pgrep -x envd)'),
  });
});

test.each([
  { guest: BUSYBOX, readOnly: true },
  { guest: MUSL, musl: true },
])('$guest', async ({ guest, ...options }) => {
  needs('mounts', '/bin/busybox', 'musl-gcc');
  const root = await BareRoot.create({ image: unpacked(), ...options });
  onTestFinished(() => root[Symbol.asyncDispose]());
  await root.mountProc();
  const port = await freePort();
  const command = root.command('/opt/envd/bin/envd-supervise');
  await using loop = await startDaemon({ command, port, env: { ENVD_FORWARD_ADDRESS: 'off' } });
  await add(guest, 'none: envd-supervise', 'archive', {
    daemon: new Remote(port),
    upgrade: () => void process.kill(loop.pid, 'SIGUSR2'),
    kill: () => void process.kill(childrenOf(loop.pid)[0] ?? -1, 'SIGKILL'),
  });
});

/** The order of the table. */
const GUESTS = ['Debian 11', 'Debian 12', 'Debian 13', BUSYBOX, MUSL];

afterAll(() => {
  const place = ([guest = '']: readonly string[]) => GUESTS.indexOf(guest);
  const missing = NOT_RUN.map((guest) => [
    guest,
    '',
    'not run: no root can be had',
    ...COLUMNS.map(() => ''),
  ]);
  const head = ['guest', 'init', 'installed by', ...COLUMNS];
  const tried = rows.toSorted((one, other) => place(one) - place(other) || (one[1] === 'systemd' ? -1 : 1));
  const table = aligned([head, head.map(() => '---'), ...tried, ...missing]);
  const [before = '', rest = ''] = readFileSync(DOCUMENT, 'utf8').split(BEGIN);
  const [told = '', ...after] = rest.split(END);
  // A guest that failed, or that was not run here, is no change of the table.
  if (rows.length < GUESTS.length + 1) return;
  if (process.env.ENVD_GUEST_TABLE === 'write')
    writeFileSync(DOCUMENT, [before, BEGIN, table, END, ...after].join(''));
  else expect(told).toBe(table);
});

function aligned(cells: readonly (readonly string[])[]): string {
  const widths = (cells[0] ?? []).map((_, column) =>
    Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  );
  const line = (row: readonly string[], filling: string) =>
    `| ${widths.map((width, column) => (row[column] ?? '').padEnd(width, filling)).join(' | ')} |`;
  return cells.map((row) => line(row, row[0] === '---' ? '-' : ' ')).join('\n');
}

function settings(port: number): string {
  return `ENVD_HOST=127.0.0.1\nENVD_PORT=${port}\nENVD_METADATA_SERVICE=off\nENVD_FORWARD_ADDRESS=off\nENVD_REQUIRE_TOKEN=1\n`;
}

function unpacked(): string {
  const directory = scratch();
  spawnSync('tar', [
    '-C',
    directory,
    '--zstd',
    '-xf',
    artefact(inject('artefacts'), /^envd-[\d.]+-linux-.*\.tar\.zst$/),
  ]);
  return join(directory, 'envd');
}

function install(root: string): void {
  const dist = unpacked();
  const { status, stderr } = spawnSync('sh', [join(dist, 'install/install.sh'), dist, root], {
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
}
