import { once } from 'node:events';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { pino } from 'pino';
import { Addresses } from '../../src/gateway/access/addresses.ts';
import { Expiration } from '../../src/gateway/expiry/expiration.ts';
import { HeldLease } from '../../src/gateway/expiry/held-lease.ts';
import { MachineMaker } from '../../src/gateway/expiry/machine-maker.ts';
import { CommandHook } from '../../src/gateway/hooks/command-hook.ts';
import type { Sandbox } from '../../src/gateway/leases/sandbox.ts';
import { type Change, Registry } from '../../src/gateway/registry/registry.ts';
import { LIFE_MS, PAUSED } from './expiry.ts';

/** How long something that must happen may take, in milliseconds. */
const LIMIT_MS = 120_000;
const FIGURES = { requested: 1, frozen: 1, notFrozen: 0, failed: 0, unobservable: 0, truncated: false };

/** Waits until there is something, by a clock that no test stops. */
export async function arrives<T>(what: string, look: () => T | null | undefined | false): Promise<T> {
  for (const end = Date.now() + LIMIT_MS; Date.now() < end; ) {
    const found = look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error(`${what} does not come`);
}

/** Where a gateway waits until it is let on. */
class Gate {
  #waiting: PromiseWithResolvers<'go' | 'lose'> | null = null;

  pass(): Promise<'go' | 'lose'> {
    this.#waiting = Promise.withResolvers();
    return this.#waiting.promise;
  }

  async open(what: string, how: 'go' | 'lose' = 'go'): Promise<void> {
    const waiting = await arrives(what, () => this.#waiting);
    this.#waiting = null;
    waiting.resolve(how);
  }
}

/** Stops before each change, and again before its answer. */
export class GatedRegistry extends Registry {
  readonly before = new Gate();
  readonly after = new Gate();
  /** Whether a change has been made whose answer waits. */
  isDone = false;

  override async change(id: string, change: Change): Promise<Sandbox | null | undefined> {
    const how = await this.before.pass();
    const changed = await super.change(id, change);
    if (how === 'lose') throw new Error('the connection to the registry was lost');
    this.isDone = true;
    await this.after.pass();
    this.isDone = false;
    return changed;
  }
}

/** Each gateway calls the guest at an address of its own. */
class OneAddress extends Addresses {
  readonly #address: string;

  constructor(address: string) {
    super({ allowAddresses: [{ address, prefix: null }], allowPorts: [] });
    this.#address = address;
  }

  override async resolve(): Promise<string> {
    return this.#address;
  }
}

/** The guest, as a gateway reaches it: freezes and thaws wait until it is said how they end. */
export class Guest {
  isFrozen = false;
  #port = 0;
  readonly #servers = new Map<string, Server>();
  readonly #calls = new Map<string, { readonly operation: string; readonly response: ServerResponse }>();

  static async start(addresses: readonly string[]): Promise<Guest> {
    const guest = new Guest();
    for (const address of addresses) {
      const server = createServer((request, response) => guest.#take(address, request, response));
      server.listen(guest.#port, address);
      await once(server, 'listening');
      guest.#port = (server.address() as AddressInfo).port;
      guest.#servers.set(address, server);
    }
    return guest;
  }

  /** At all of its addresses. */
  get port(): number {
    return this.#port;
  }

  /** Ends the call that comes from there. */
  async answer(
    address: string,
    operation: 'freeze' | 'thaw',
    how: 'done' | 'refused' | 'lost' | 'not answered',
  ) {
    const path = operation === 'freeze' ? '/freeze' : '/unfreeze';
    const find = () => this.#calls.get(address);
    const call = await arrives(`the ${operation} from ${address}`, find);
    if (call.operation !== path) throw new Error(`${call.operation} came, not ${path}`);
    this.#calls.delete(address);
    if (how === 'done' || how === 'lost') this.isFrozen = operation === 'freeze';
    if (how === 'done') call.response.writeHead(200).end(JSON.stringify(FIGURES));
    else if (how === 'refused') call.response.writeHead(500).end('no');
    else call.response.destroy();
  }

  isCalledFrom(address: string): boolean {
    return this.#calls.has(address);
  }

  close(): void {
    for (const server of this.#servers.values()) {
      server.closeAllConnections();
      server.close();
    }
  }

  #take(address: string, { url = '' }: IncomingMessage, response: ServerResponse): void {
    const operation = url.split('?')[0] ?? '';
    if (operation === '/collapse') response.end('{}');
    else if (operation === '/health') response.writeHead(204).end();
    else this.#calls.set(address, { operation, response });
  }
}

/** The command of a hook that tells who it is, and waits until it is said how it ends. */
export class HookCommand {
  readonly #directory: string;
  readonly hook: Promise<CommandHook>;

  constructor(directory: string) {
    this.#directory = directory;
    const verdict = `${directory}/verdict-$EXPIRY_ID`;
    const command = `echo "$EXPIRY_ID $OUTCOME" >>${directory}/told; until [ -e ${verdict} ]; do sleep 0.01; done; exit $(cat ${verdict})`;
    const options = {
      command,
      directory: join(directory, 'runs'),
      limitMs: 600_000,
      path: process.env.PATH ?? '',
    };
    this.hook = CommandHook.open(options);
  }

  /** Attempts and what was wanted, in the order of their runs. */
  told(): string[] {
    const file = join(this.#directory, 'told');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  }

  end(id: string, code: number): void {
    const verdict = join(this.#directory, `verdict-${id}`);
    // By a rename: the command may be looking.
    writeFileSync(`${verdict}.new`, String(code));
    renameSync(`${verdict}.new`, verdict);
  }
}

/** A run of a gateway: the real `Expiration` and registry, which go on when they are told to. */
export class Gateway {
  readonly address: string;
  readonly owner: string;
  readonly registry: GatedRegistry;
  readonly #expiration: Expiration;
  readonly #stop = new AbortController();
  #begin: (() => Promise<void>) | null = null;
  hasEnded = true;

  constructor(owner: string, address: string, registry: GatedRegistry, hook: CommandHook) {
    this.owner = owner;
    this.address = address;
    this.registry = registry;
    this.#expiration = new Expiration({
      ...{
        registry,
        owner,
        resumedFor: () => LIFE_MS / 1000,
        paused: PAUSED,
        addresses: new OneAddress(address),
      },
      ...{
        hooks: { expire: hook, kill: hook, resume: hook, create: null },
        maker: new MachineMaker({
          ...{ hook: null, addresses: new OneAddress(address), logger: pino({ level: 'silent' }) },
          drained: async () => new Set(),
        }),
        onGone: () => {},
        logger: pino({ level: 'silent' }),
      },
    });
  }

  /** It has a claim, and has done nothing with it. */
  claimed(sandbox: Sandbox, since: number): void {
    const lease = new HeldLease(since, this.#stop.signal);
    this.hasEnded = false;
    this.#begin = () => this.#expiration.run(sandbox, lease);
  }

  /** From where it has a claim, or has heard that a change is done. */
  async goOn(): Promise<void> {
    if (!this.#begin) return this.registry.after.open('the answer to a change');
    const run = this.#begin();
    this.#begin = null;
    void run
      .catch(() => {})
      .finally(() => {
        this.hasEnded = true;
      });
  }

  ends(): Promise<boolean> {
    return arrives(`the end of ${this.owner}`, () => this.hasEnded);
  }

  /** As a crash would, it does nothing more. */
  stop(): void {
    this.#stop.abort();
  }
}
