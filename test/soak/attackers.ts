import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Code, ConnectError } from '@connectrpc/connect';
import { STRANGER } from '../support/attackers/exchanger.ts';
import { transcribe } from '../support/clients/clients.ts';
import { RAW } from '../support/clients/files-client.ts';
import { until } from '../support/until.ts';
import { anyOf, check, checkEqual } from './checks.ts';
import { PATIENCE_MS, type Place } from './place.ts';

/** Users of every Debian, whose processes no other test has: one for each daemon, as they would stop each other. */
const USERS = [
  { name: 'news', uid: 9 },
  { name: 'proxy', uid: 13 },
] as const;
/** How long a directory is held, in seconds; the daemon waits for 10. */
const HELD_S = 12;
/** After which a start is ended, in milliseconds. */
const DEADLINE_MS = 12_000;
/** Names that are exchanged, and what is below them. */
const PATHS = ['x', 'y', 'x/f', 'y/f', 'x/d/f', 'y/d', 'x/d/new/f', 'z/f'];
/** What a call must not end with, whatever a stranger does. */
const OUR_FAULT: readonly Code[] = [Code.Internal, Code.Unknown, Code.Unavailable, Code.DataLoss];

const script = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const encoded = (user: string) => Buffer.from(`${user}:`).toString('base64');
const as = (user: string) => ({ authorization: `Basic ${encoded(user)}` });

/** Processes of strangers that attack a daemon until they are disposed of. */
export class Attackers implements AsyncDisposable {
  readonly #place: Place;
  readonly #children: ChildProcess[] = [];
  readonly #before: string;
  /** Whose processes are stopped. */
  readonly #user: (typeof USERS)[number];

  private constructor(place: Place) {
    this.#place = place;
    this.#user = USERS[place.isEnded ? 1 : 0];
    for (const name of ['', 'held', 'holder', 'work', 'treasure/closed'])
      mkdirSync(this.#at(name), { recursive: true });
    chmodSync(place.subject.scratch, 0o755);
    chownSync(this.#at('work'), STRANGER, STRANGER);
    for (const name of ['f', 'closed/f'])
      writeFileSync(this.#at(`treasure/${name}`), 'secret', { mode: 0o600 });
    chmodSync(this.#at('treasure/closed'), 0o700);
    this.#before = this.#treasure();
  }

  static async start(place: Place): Promise<Attackers> {
    const attackers = new Attackers(place);
    const at = (name: string) => attackers.#at(name);
    const targets = ['treasure', 'treasure/f', 'treasure/closed', 'treasure/closed/f'].map(at);
    const seed = String(anyOf(1e9));
    await attackers.#begin(
      script('../support/attackers/exchange-any.py'),
      `${STRANGER}`,
      at('work'),
      seed,
      ...targets,
    );
    await attackers.#begin(script('held-directory.py'), `${STRANGER}`, at('held'), `${HELD_S}`);
    await attackers.#begin(script('stop-starts.py'), `${attackers.#user.uid}`);
    return attackers;
  }

  /** Starts as a user whose processes are stopped. */
  async starts(): Promise<void> {
    await Promise.all(
      Array.from({ length: 8 }, () =>
        this.#answered(async () => {
          const { process } = this.#place.clients;
          const options = { headers: as(this.#user.name), timeoutMs: DEADLINE_MS };
          await transcribe(process.start({ process: { cmd: '/bin/true', cwd: '/' } }, options));
        }),
      ),
    );
  }

  /** Calls on paths that a stranger exchanges with links to what is not his. */
  async exchanges(): Promise<void> {
    const { filesystem } = this.#place.clients;
    const path = this.#at(`work/${PATHS[anyOf(PATHS.length)]}`);
    const calls = [
      () => filesystem.stat({ path }),
      () => filesystem.listDir({ path, depth: 3 }),
      () => filesystem.makeDir({ path: `${path}/${anyOf(50)}` }),
      () => filesystem.remove({ path: `${path}/${anyOf(50)}` }),
      () => this.#upload(path),
      () => this.#download(path),
      async () => {
        const { watcherId } = await filesystem.createWatcher({ path, recursive: true });
        await filesystem.removeWatcher({ watcherId });
      },
    ];
    for (const call of calls) await this.#answered(call);
    checkEqual('what is not the stranger’s', this.#treasure(), this.#before);
  }

  /** Calls in a directory whose lock a stranger holds. */
  async held(): Promise<void> {
    const { filesystem } = this.#place.clients;
    const path = this.#at(`held/${anyOf(1e6)}`);
    await this.#answered(() => this.#upload(path));
    await this.#answered(() => filesystem.stat({ path }));
    await this.#answered(() => filesystem.remove({ path }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) {
      child.kill();
      // Another soak beside this one may have stopped it, and do so again.
      await until('an attacker has ended', () => !child.kill('SIGCONT'), Boolean, PATIENCE_MS);
    }
  }

  #at(name: string): string {
    return join(this.#place.subject.scratch, 'attacked', name);
  }

  /** Resolves when it has begun. */
  async #begin(program: string, ...args: readonly string[]): Promise<void> {
    const child = spawn('python3', ['-u', program, ...args], {
      cwd: this.#at('holder'),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#children.push(child);
    await once(child.stdout, 'data');
  }

  /** A refusal is an answer, too. */
  async #answered(call: () => Promise<unknown>): Promise<void> {
    await this.#place.attempt(async () => {
      try {
        await call();
      } catch (error) {
        const { code } = ConnectError.from(error);
        if (!(error instanceof ConnectError) || OUR_FAULT.includes(code)) throw error;
      }
    });
  }

  async #upload(path: string): Promise<void> {
    const request = { method: 'POST', headers: RAW, body: 'of the client' };
    await this.#rest(path, request);
  }

  async #download(path: string): Promise<void> {
    const text = await this.#rest(path, {});
    check('a secret was read', !text.includes('secret'));
  }

  async #rest(path: string, init: RequestInit): Promise<string> {
    const refusals = [400, 401, 403, 404, 409, 412, 504, 507];
    const { text } = await this.#place.rest(`/files?${new URLSearchParams({ path })}`, init, [
      200,
      ...refusals,
    ]);
    return text;
  }

  /** Everything that must not change. */
  #treasure(): string {
    const top = this.#at('treasure');
    const names = readdirSync(top, { recursive: true }).map(String).sort();
    const described = names.map((name) => {
      const { mode, uid, gid, ino, nlink, size } = lstatSync(join(top, name));
      const text = name.endsWith('f') ? readFileSync(join(top, name), 'utf8') : '';
      return [name, mode, uid, gid, ino, nlink, size, text];
    });
    return JSON.stringify(described);
  }
}
