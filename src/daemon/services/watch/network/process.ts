import { type ChildProcess, spawn } from 'node:child_process';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { EnvdError } from '../../../../base/errors.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import { isBundle } from '../../../linux/system/self.ts';
import type { TreeChange } from '../local/event.ts';
import type { Report, Request } from './protocol.ts';

/** Time without an answer after which a file system counts as hung, in milliseconds. */
const SILENCE_MS = 10_000;

/** Beside this file; in an image beside the bundle of the daemon. */
const PROGRAM = new URL(isBundle ? './watch-network.cjs' : './program.ts', import.meta.url);

/** Receives the reports about one watch. */
export interface Listener {
  started(): void;
  changed(changes: readonly TreeChange[]): void;
  ended(error: Error | null): void;
}

/** The process that watches directories of one network mount. */
export class NetworkProcess implements Disposable {
  readonly #mount: BytePath;
  readonly #child: ChildProcess;
  readonly #listeners = new Map<number, Listener>();
  #lastId = 0;
  #silence: NodeJS.Timeout | null = null;
  #isOver = false;

  constructor(mount: BytePath) {
    this.#mount = mount;
    // SIGUSR1 must not open an inspector.
    this.#child = spawn(process.execPath, ['--disable-sigusr1', fileURLToPath(PROGRAM)], {
      argv0: 'envd',
      // It needs no variables of the daemon.
      env: {},
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#child.unref();
    this.#child.channel?.unref();
    this.#child.on('message', (message: Report) => this.#handle(message));
    this.#child.on('error', (error) => this.#fail(error.message));
    this.#child.on('exit', (code, signal) => this.#fail(`its watcher has ended with ${signal ?? code}`));
    this.#listen();
  }

  get isIdle(): boolean {
    return this.#listeners.size === 0;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Starts a watch; returns a function that stops it. */
  watch(root: BytePath, recursive: boolean, listener: Listener): () => void {
    const id = ++this.#lastId;
    this.#listeners.set(id, listener);
    this.#send({ type: 'start', id, root, recursive });
    return () => {
      if (this.#listeners.delete(id)) this.#send({ type: 'stop', id });
    };
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    if (this.#silence) clearTimeout(this.#silence);
    this.#child.removeAllListeners();
    // SIGKILL, because a process that hangs in the file system handles no message.
    this.#child.kill('SIGKILL');
  }

  #send(request: Request): void {
    if (!this.#isOver && this.#child.connected) this.#child.send(request, () => {});
  }

  #handle(message: Report): void {
    this.#listen();
    if (message.type === 'alive') return;
    const listener = this.#listeners.get(message.id);
    if (message.type === 'started') listener?.started();
    else if (message.type === 'changes') listener?.changed(message.changes);
    else {
      const { id, error } = message;
      this.#listeners.delete(id);
      listener?.ended(error && new EnvdError(error.kind, error.message));
    }
  }

  /** Restarts the timer for the next message; one more second, in case the daemon's own event loop was busy. */
  #listen(): void {
    if (this.#silence) clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#silence = setTimeout(() => this.#fail('it does not answer'), SILENCE_MS / 10).unref();
    }, SILENCE_MS).unref();
  }

  #fail(reason: string): void {
    if (this.#isOver) return;
    this[Symbol.dispose]();
    const mount = displayPath(this.#mount);
    const error = new EnvdError('unavailable', `cannot watch network filesystem '${mount}': ${reason}`);
    const listeners = [...this.#listeners.values()];
    this.#listeners.clear();
    for (const listener of listeners) listener.ended(error);
  }
}
