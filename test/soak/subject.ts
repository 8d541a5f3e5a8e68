import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Clients, connectTo } from '../support/clients/clients.ts';
import { Guest } from '../support/guest/guest.ts';
import type { Image } from '../support/guest/image.ts';
import { Machine } from '../support/guest/machine.ts';
import { exitIsTold } from '../support/machine/machine.ts';
import type { LogLine } from '../support/programs/log-lines.ts';
import { startSupervised } from '../support/programs/supervised.ts';

/** Those of `npm start`. */
const FLAGS = ['--max-semi-space-size=2', '--no-parallel-scavenge'];
/** A machine that has no time may take minutes for the trial of a program. */
const LIMITS = { ENVD_HISTORY_BYTES: '400000', ENVD_UPGRADE_TIMEOUT: '300' };
/** Without KVM everything takes longer. */
const EMULATED = { ...LIMITS, ENVD_START_TIMEOUT: '300' };
const DROP_IN = '/run/systemd/system/envd.service.d';
const KEPT = 'journalctl --boot --unit=envd --output=cat --no-pager';

/** A daemon below a service manager, wherever it runs. */
export interface Subject extends AsyncDisposable {
  readonly url: string;
  readonly clients: Clients;
  /** A directory on its machine. */
  readonly scratch: string;
  /** Its machine is emulated, and its own: all of it may be frozen, its clock be set, and there are no attackers. */
  readonly isGuest: boolean;
  /** Whether its kernel tells a daemon how a process has ended that an earlier one has started. */
  readonly tellsExits: boolean;
  pid(): Promise<string>;
  readonly manager: number;
  /** Below which its cgroups are. */
  readonly cgroups: string;
  /** Standard output of a command on its machine. Throws when it fails. */
  shell(command: string): Promise<string>;
  /** These resolve when the next daemon listens. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  /** Throws, with the status, when it is refused. */
  upgrade(): Promise<void>;
  /** Lines of errors. */
  errors(): Promise<readonly LogLine[]>;
}

const isError = ({ level }: LogLine) => level >= 50;

/** A daemon of the sources on this machine. */
export async function startHere(): Promise<Subject> {
  const supervised = await startSupervised({ env: { ...LIMITS, UV_THREADPOOL_SIZE: '16' } }, FLAGS);
  const { daemon } = supervised;
  return {
    url: daemon.url,
    clients: connectTo(daemon.url, 'binary'),
    scratch: daemon.scratch,
    isGuest: false,
    tellsExits: exitIsTold(),
    pid: async () => String(supervised.main()),
    manager: daemon.pid,
    cgroups: daemon.cgroupRoot ?? '',
    shell: async (command) => (await promisify(execFile)('sh', ['-c', command])).stdout,
    kill: () => unlessLate(supervised.crash('SIGKILL')),
    restart: () => unlessLate(supervised.crash('SIGQUIT')),
    upgrade: () => unlessLate(supervised.upgrade()),
    errors: async () => daemon.log.filter(isError),
    [Symbol.asyncDispose]: () => supervised[Symbol.asyncDispose](),
  };
}

/** The daemon of this image in a guest, where systemd starts it. */
export async function startInGuest(image: Image): Promise<Subject> {
  await using started = new AsyncDisposableStack();
  const directory = mkdtempSync(join(tmpdir(), 'envd-soak-'));
  started.defer(() => rmSync(directory, { recursive: true, force: true }));
  const machine = started.use(await Machine.boot(image, join(directory, 'machine')));
  const guest = new Guest(machine.url);
  await guest.shell('systemctl is-system-running --wait || true');
  const settings = Object.entries(EMULATED).map(([name, value]) => `Environment=${name}=${value}`);
  await guest.call('POST', `/files?path=${DROP_IN}/soak.conf`, ['[Service]', ...settings, ''].join('\n'));
  await guest.next('systemctl daemon-reload && systemctl restart envd');
  const tellsExits = exitIsTold(await guest.shell('uname -r'));
  const all = started.move();
  return {
    url: guest.url,
    clients: guest,
    scratch: '/srv',
    isGuest: true,
    tellsExits,
    pid: () => guest.mainPid(),
    manager: 1,
    cgroups: '/sys/fs/cgroup/envd',
    shell: (command) => guest.system(command),
    kill: () => guest.next('systemctl kill --signal=SIGKILL envd'),
    restart: () => guest.next('systemctl restart envd'),
    upgrade: () =>
      guest.next(async () => {
        const { status } = await guest.call('POST', '/upgrade');
        if (status !== 202) throw new Error(`/upgrade: ${status}`);
      }),
    async errors() {
      const text = await guest.system(`${KEPT} | grep -E '"level":[56]0' || true`);
      return text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as LogLine);
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** On a machine that has no time the next one may listen later than tests wait. */
async function unlessLate(work: Promise<void>): Promise<void> {
  await work.catch((error: unknown) => {
    if (!/^waited \d+ ms/.test(String((error as Error).message))) throw error;
  });
}
