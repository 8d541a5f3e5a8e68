import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Qmp } from '../../../examples/platform/qmp.ts';
import { isSystemError } from '../../../src/base/errors.ts';
import { freePort } from '../servers/free-port.ts';
import { until } from '../until.ts';
import type { Image } from './image.ts';
import { guestProcessor } from './processor.ts';
import { run } from './tools.ts';

const MEMORY = '1024M';
const COMMAND_LINE = 'quiet net.ifnames=0 mitigations=off nokaslr random.trust_cpu=on';
/** A boot without KVM takes 20 s, and several times as long on a busy machine. */
const BOOT_LIMIT_MS = 600_000;
/** After this time qemu is taken to hang. */
const QEMU_LIMIT_MS = 300_000;

/** A stopped machine: memory, disk and device state. It can be started any number of times. */
export interface Snapshot {
  readonly image: Image;
  readonly directory: string;
}

/** Whether writes to memory and disk go to the files. */
interface Modes {
  readonly share: 'on' | 'off';
  readonly snapshot: 'on' | 'off';
}

function consoleOf(directory: string, port: number): string {
  return join(directory, `${port}.console`);
}

/** A guest under qemu, without KVM, which many hosts lack: slow, but the same everywhere. */
export class Machine implements AsyncDisposable {
  readonly url: string;
  readonly #image: Image;
  readonly #directory: string;
  readonly #console: string;
  readonly #qemu: ChildProcess;
  readonly #ended: Promise<unknown>;
  readonly #qmp: Qmp;

  private constructor(image: Image, directory: string, port: number, qemu: ChildProcess, qmp: Qmp) {
    this.url = `http://127.0.0.1:${port}`;
    this.#image = image;
    this.#directory = directory;
    this.#console = consoleOf(directory, port);
    this.#qemu = qemu;
    this.#ended = once(qemu, 'exit');
    this.#qmp = qmp;
  }

  /** Boots the image until the daemon answers; `directory` has the files of the machine. */
  static async boot(image: Image, directory: string): Promise<Machine> {
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true });
    run('qemu-img', [
      'create',
      '-q',
      '-f',
      'qcow2',
      '-b',
      image.disk,
      '-F',
      'raw',
      join(directory, 'disk.qcow2'),
    ]);
    const machine = await Machine.#start(image, directory, { share: 'on', snapshot: 'off' }, []);
    try {
      await machine.answers(BOOT_LIMIT_MS);
    } catch (error) {
      await machine[Symbol.asyncDispose]();
      throw error;
    }
    return machine;
  }

  /** Resumes the machine. Its changes are lost when it ends. */
  static restore(snapshot: Snapshot, env: Record<string, string> = {}): Promise<Machine> {
    return Machine.#resume(snapshot, { share: 'off', snapshot: 'on' }, env);
  }

  /** The same with a copy of the snapshot in its own directory, so that another snapshot can be taken. */
  static fork({ image, directory: original }: Snapshot, directory: string): Promise<Machine> {
    rmSync(directory, { recursive: true, force: true });
    run('cp', ['--recursive', '--sparse=always', original, directory]);
    return Machine.#resume({ image, directory }, { share: 'on', snapshot: 'off' });
  }

  static async #resume({ image, directory }: Snapshot, modes: Modes, env = {}): Promise<Machine> {
    const machine = await Machine.#start(image, directory, modes, ['-incoming', 'defer'], env);
    await machine.#ignoreSharedMemory();
    await machine.#qmp.execute('migrate-incoming', { uri: `exec:cat ${join(directory, 'state')}` });
    await machine.#migrated();
    await machine.#qmp.execute('cont');
    return machine;
  }

  static async #start(
    image: Image,
    directory: string,
    { share, snapshot }: Modes,
    more: readonly string[],
    env: Record<string, string> = {},
  ): Promise<Machine> {
    const port = await freePort();
    // Several may be restored from one directory at a time.
    const control = join(directory, `${port}.qmp`);
    const memory = `memory-backend-file,id=m0,size=${MEMORY},mem-path=${join(directory, 'memory')},share=${share}`;
    const drive = `id=d,file=${join(directory, 'disk.qcow2')},format=qcow2,if=none,snapshot=${snapshot}`;
    const { qemu: program, machine, transport, cpu, console } = guestProcessor();
    const args = [
      ...['-M', `${machine},memory-backend=m0`, '-accel', 'tcg,tb-size=512', '-cpu', cpu, '-m', MEMORY],
      ...['-object', memory, '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
      ...['-kernel', image.kernel, '-initrd', image.initrd, '-append', `console=${console} ${COMMAND_LINE}`],
      ...['-drive', drive, '-device', `virtio-blk-${transport},drive=d`],
      ...[
        '-netdev',
        `user,id=n,hostfwd=tcp:127.0.0.1:${port}-:49983`,
        '-device',
        `virtio-net-${transport},netdev=n`,
      ],
      ...['-serial', `file:${consoleOf(directory, port)}`, '-qmp', `unix:${control},server=on,wait=off`],
    ];
    const qemu = spawn(program, [...args, ...more], {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { ...process.env, ...env },
    });
    const qmp = await until(`qemu listens on '${control}'`, () => Qmp.connect(control).catch(ifListening));
    return new Machine(image, directory, port, qemu, qmp);
  }

  /** Waits until the daemon answers. Throws with the end of the console when it does not. */
  async answers(limitMs = 180_000): Promise<void> {
    const limit = AbortSignal.timeout(limitMs);
    while (!limit.aborted) {
      const response = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(5000) }).catch(
        () => null,
      );
      if (response?.status === 204) return;
      await sleep(20);
    }
    const status = await Promise.race([
      this.#qmp.execute('query-status').catch(String),
      sleep(QEMU_LIMIT_MS, 'no answer of qemu'),
    ]);
    const console = readFileSync(this.#console, 'utf8');
    throw new Error(
      `no answer within ${limitMs} ms; ${JSON.stringify(status)}; the console ends with:\n${console.slice(-2000)}`,
    );
  }

  /** Stops the machine and ends qemu; the snapshot can be restored. */
  async snapshot(): Promise<Snapshot> {
    await this.#stop();
    await this[Symbol.asyncDispose]();
    return { image: this.#image, directory: this.#directory };
  }

  async #stop(): Promise<void> {
    await this.#qmp.execute('stop');
    await this.#ignoreSharedMemory();
    await this.#qmp.execute('migrate', { uri: `exec:cat >${join(this.#directory, 'state')}` });
    await this.#migrated();
  }

  /** The memory is in a file already, so only the device state is written and read. */
  async #ignoreSharedMemory(): Promise<void> {
    const capabilities = [{ capability: 'x-ignore-shared', state: true }];
    await this.#qmp.execute('migrate-set-capabilities', { capabilities });
  }

  async #migrated(): Promise<void> {
    for (;;) {
      const { status } = (await this.#qmp.execute('query-migrate')) as { status?: string };
      if (status === 'completed') return;
      if (status === 'failed') throw new Error('the state of the machine could not be moved');
      await sleep(5);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const kill = () => this.#qemu.kill('SIGKILL');
    const limit = setTimeout(kill, QEMU_LIMIT_MS);
    if (this.#qemu.exitCode === null) await this.#qmp.execute('quit').catch(kill);
    this.#qmp[Symbol.dispose]();
    await this.#ended;
    clearTimeout(limit);
  }
}

/** Null when the socket does not accept connections yet. */
function ifListening(error: unknown): null {
  if (isSystemError(error, 'ENOENT', 'ECONNREFUSED')) return null;
  throw error;
}
