import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** A program that needs musl's dynamic loader, and tells what its process has inherited. */
const MUSL_PROGRAM = `
#include <stdio.h>
extern char **environ;
int main(void) {
  for (char **each = environ; *each; each++) puts(*each);
  return 0;
}`;

export interface BareRootOptions {
  /** The daemon's built directory, which is mounted read-only at /opt/envd. */
  readonly image: string;
  /** Whether the root also has musl and the program /bin/musl-env that is linked with it. */
  readonly musl?: boolean;
  readonly readOnly?: boolean;
  /** A mount point in the directory of temporary files, whose mount the root also has. */
  readonly mounted?: string;
}

/**
 * A root file system with busybox and, if wanted, musl, but nothing else, in a mount namespace that ends with it. Temporary files of
 * this machine, devices and sysfs are mounted in it, but procfs is not. Call `mountProc` for that.
 */
export class BareRoot implements AsyncDisposable {
  readonly #path = mkdtempSync(join(tmpdir(), 'envd-root-'));
  readonly #shell = spawn('unshare', ['--mount', 'sh'], { stdio: ['pipe', 'pipe', 'inherit'] });
  readonly #codes = createInterface({ input: this.#shell.stdout })[Symbol.asyncIterator]();

  private constructor() {
    for (const directory of ['bin', 'dev', 'opt/envd', 'proc', 'sys', tmpdir()])
      mkdirSync(join(this.#path, directory), { recursive: true });
    copyFileSync('/bin/busybox', join(this.#path, 'bin/busybox'));
    for (const name of ['sh', 'cat', 'stty']) symlinkSync('busybox', join(this.#path, 'bin', name));
    // The daemon is called by it: a link to a link.
    symlinkSync('other', join(this.#path, 'bin/envd'));
    symlinkSync('../opt/envd/bin/envd', join(this.#path, 'bin/other'));
  }

  static async create({ image, musl, readOnly, mounted }: BareRootOptions): Promise<BareRoot> {
    const root = new BareRoot();
    const path = root.#path;
    if (musl) root.#addMusl();
    await root.#run(`mount --bind ${path} ${path}`);
    await root.#run(`mount --bind ${image} ${path}/opt/envd && mount -o remount,bind,ro ${path}/opt/envd`);
    await root.#run(`mount --rbind /dev ${path}/dev && mount --rbind /sys ${path}/sys`);
    await root.#run(`mount --bind ${tmpdir()} ${path}${tmpdir()}`);
    if (mounted) await root.#run(`mount --bind ${mounted} ${path}${mounted}`);
    if (readOnly) await root.#run(`mount -o remount,bind,ro ${path}`);
    return root;
  }

  #addMusl(): void {
    const program = join(this.#path, 'bin/musl-env');
    execFileSync('musl-gcc', ['-x', 'c', '-o', program, '-'], { input: MUSL_PROGRAM });
    mkdirSync(join(this.#path, 'lib'));
    copyFileSync('/lib/ld-musl-x86_64.so.1', join(this.#path, 'lib/ld-musl-x86_64.so.1'));
  }

  mountProc(): Promise<void> {
    return this.#run(`mount -t proc proc ${this.#path}/proc`);
  }

  /** Returns a command that executes another one in this root. */
  command(...command: readonly string[]): [string, ...string[]] {
    return ['nsenter', `--mount=/proc/${this.#shell.pid}/ns/mnt`, 'chroot', this.#path, ...command];
  }

  async #run(line: string): Promise<void> {
    this.#shell.stdin.write(`{ ${line}; } >&2; echo $?\n`);
    const { value } = await this.#codes.next();
    if (value !== '0') throw new Error(`'${line}' exited with ${value}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#shell, 'exit');
    this.#shell.stdin.end();
    await ended;
    rmSync(this.#path, { recursive: true, force: true });
  }
}
