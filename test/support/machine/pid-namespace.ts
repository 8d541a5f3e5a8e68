import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { type LogLine, portWhenReady } from '../programs/log-lines.ts';

/** A shell in its own pid and mount namespaces (pid_namespaces(7)), which end with it. */
export class PidNamespace implements AsyncDisposable {
  readonly log: LogLine[] = [];
  readonly #shell: ChildProcess;
  readonly #exited: Promise<{ code: number | null }>;
  readonly #codes: AsyncIterator<string>;

  constructor(cwd: string) {
    const args = ['--pid', '--fork', '--mount-proc', '--kill-child', 'sh'];
    this.#shell = spawn('unshare', args, { cwd, stdio: ['pipe', 'pipe', 'inherit', 'pipe'] });
    this.#exited = new Promise((resolve) => this.#shell.once('exit', (code) => resolve({ code })));
    const input = this.#shell.stdio[3] as Readable;
    this.#codes = createInterface({ input })[Symbol.asyncIterator]();
  }

  /** Runs a line of shell, which appears in no command line; returns its exit code. */
  async run(line: string): Promise<number> {
    this.#shell.stdin?.write(`{ ${line}\n} </dev/null >/dev/null 2>&1\necho $? >&3\n`);
    const { value } = await this.#codes.next();
    return Number(value);
  }

  /** Starts a daemon or gateway, whose log is its standard output; resolves with its port when it is ready. */
  start(command: string): Promise<number> {
    this.#shell.stdin?.write(`${command} </dev/null 3>&- &\n`);
    return portWhenReady(`'${command}'`, this.#shell, this.log, this.#exited);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#shell.stdin?.end();
    await this.#exited;
  }
}
