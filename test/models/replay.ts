import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { monotonicMs } from '../../src/base/monotonic.ts';
import { beginResume } from '../../src/gateway/leases/resumption.ts';
import type { Outcome, Sandbox } from '../../src/gateway/leases/sandbox.ts';
import { acquire } from '../../src/gateway/leases/transitions.ts';
import { EmbeddedStore } from '../../src/gateway/registry/embedded.ts';
import { Registry } from '../../src/gateway/registry/registry.ts';
import { firstRecord, type State, WISHES } from './expiry.ts';
import { arrives, GatedRegistry, Gateway, Guest, HookCommand } from './stage.ts';

const ADDRESSES: Readonly<Record<string, string>> = { a: '127.0.0.1', b: '127.0.0.2' };

/** A clock that stands until it is moved, in ms. */
export interface Clock {
  now: number;
}

/** Plays what a model does with the real registry, expiration and hooks. */
export class Replay implements AsyncDisposable {
  readonly #store: EmbeddedStore;
  readonly #registry: Registry;
  readonly #guest: Guest;
  readonly #command: HookCommand;
  readonly #clock: Clock;
  readonly #gateways = new Map<string, Gateway>();
  readonly #all: Gateway[] = [];

  private constructor(store: EmbeddedStore, guest: Guest, command: HookCommand, clock: Clock) {
    this.#store = store;
    this.#registry = new Registry(store);
    this.#guest = guest;
    this.#command = command;
    this.#clock = clock;
  }

  /** `clock`: what `monotonicMs()` returns. */
  static async start(directory: string, onExpiry: Outcome, clock: Clock): Promise<Replay> {
    mkdirSync(join(directory, 'hook'));
    const store = await EmbeddedStore.open(join(directory, 'registry'));
    const guest = await Guest.start(Object.values(ADDRESSES));
    const replay = new Replay(store, guest, new HookCommand(join(directory, 'hook')), clock);
    const { port } = guest;
    await replay.#registry.put('s', (_, now) => ({ ...firstRecord(onExpiry, now), port }));
    for (const name of Object.keys(ADDRESSES)) await replay.#replace(name);
    return replay;
  }

  /** Does a move of the model, and compares what comes of it. */
  async play(move: string, to: State): Promise<void> {
    await this.#do(move);
    const wanted = described(to.record, 0);
    const seen = async () => {
      const { sandbox, now } = await this.#registry.find('s');
      return described(sandbox, now);
    };
    expect(await seen(), move).toEqual(wanted);
    expect(this.#guest.isFrozen, move).toBe(to.isFrozen);
    const told = this.#command.told();
    expect(new Set(told.map((line) => line.split(' ')[0])).size, `${move}: each hook once`).toBe(told.length);
    for (const [id, { does }] of Object.entries(to.hooks)) expect(told).toContain(`${id} ${does}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const gateway of this.#all) gateway.stop();
    for (const line of this.#command.told()) this.#command.end(line.split(' ')[0] ?? '', 1);
    this.#guest.close();
    await this.#store[Symbol.asyncDispose]();
  }

  async #do(move: string): Promise<void> {
    const wish = WISHES[move];
    if (wish) return void (await this.#registry.change('s', wish));
    const [, ms] = /^(\d+) ms pass$/.exec(move) ?? [];
    if (ms) {
      this.#clock.now += Number(ms);
      return;
    }
    const [, id, end] = /^hook (\S+) (succeeds|fails)$/.exec(move) ?? [];
    if (id) return this.#endHook(id, end === 'succeeds');
    const [, call, name, how] = /^the (freeze|thaw) by (\w) is (.+)$/.exec(move) ?? [];
    if (call && name) return this.#call(name, call as 'freeze', how as 'done');
    const [, lost, by] = /^the answer to the (freeze|thaw) by (\w) is lost$/.exec(move) ?? [];
    if (lost && by) return this.#call(by, lost as 'freeze', 'lost');
    const [, from] = /^the answer to the record of (\w) is lost$/.exec(move) ?? [];
    if (from) return this.#record(from, 'lose');
    const [who = '', ...does] = move.split(' ');
    await this.#act(who, does.join(' '));
  }

  async #act(name: string, what: string): Promise<void> {
    const gateway = this.#named(name);
    if (what === 'claims') return this.#claim(gateway, acquire);
    if (what === 'is asked to resume') return this.#claim(gateway, beginResume);
    if (what === 'crashes') return this.#replace(name);
    if (what === 'calls the hook') return this.#callHook(gateway);
    if (what === 'hears of its hook') return;
    if (what === 'gives up') {
      await gateway.goOn();
      return void (await gateway.ends());
    }
    if (what.startsWith('records that')) return this.#record(name, 'go');
    if (what === 'is overtaken') return this.#beOvertaken(gateway);
    throw new Error(`nothing is known of '${name} ${what}'`);
  }

  async #claim(
    gateway: Gateway,
    claim: (sandbox: Sandbox, owner: string, now: number) => Sandbox | null,
  ): Promise<void> {
    const since = monotonicMs();
    const sandbox = await this.#registry.change('s', (current, now) => claim(current, gateway.owner, now));
    if (sandbox) gateway.claimed(sandbox, since);
  }

  async #call(name: string, operation: 'freeze' | 'thaw', how: 'done' | 'refused' | 'lost' | 'not answered') {
    const gateway = this.#named(name);
    await gateway.goOn();
    await this.#guest.answer(gateway.address, operation, how);
  }

  async #callHook(gateway: Gateway): Promise<void> {
    const { sandbox } = await this.#registry.find('s');
    await gateway.goOn();
    const id = sandbox && `${sandbox.incarnation}-${sandbox.expiries}`;
    await arrives(`hook ${id}`, () => this.#command.told().some((line) => line.startsWith(`${id} `)));
  }

  #endHook(id: string, succeeds: boolean): void {
    const outcome = this.#command
      .told()
      .find((line) => line.startsWith(`${id} `))
      ?.split(' ')[1];
    // The snapshot is that of a frozen guest.
    if (succeeds) this.#guest.isFrozen = outcome === 'resume';
    this.#command.end(id, succeeds ? 0 : 1);
  }

  async #record(name: string, how: 'go' | 'lose'): Promise<void> {
    const gateway = this.#named(name);
    await gateway.registry.before.open(`a change by ${name}`, how);
    if (how === 'lose') return void (await gateway.ends());
    await arrives('the change', () => gateway.registry.isDone);
    const { sandbox } = await this.#registry.find('s');
    if (sandbox?.claim) return;
    await gateway.goOn();
    await gateway.ends();
  }

  /** It may thaw the guest at its end. */
  async #beOvertaken(gateway: Gateway): Promise<void> {
    await gateway.registry.before.open(`a change by ${gateway.owner}`);
    const ended = async () => {
      await gateway.goOn();
      return gateway.ends();
    };
    const isOver = ended();
    await arrives('its end', () => gateway.hasEnded || this.#guest.isCalledFrom(gateway.address));
    if (!gateway.hasEnded) await this.#guest.answer(gateway.address, 'thaw', 'done');
    await isOver;
  }

  async #replace(name: string): Promise<void> {
    const runs = this.#all.filter(({ owner }) => owner.startsWith(name)).length;
    const registry = new GatedRegistry(this.#store);
    const hook = await this.#command.hook;
    const gateway = new Gateway(`${name}${runs + 1}`, ADDRESSES[name] ?? '', registry, hook);
    this.#gateways.set(name, gateway);
    this.#all.push(gateway);
  }

  #named(name: string): Gateway {
    const gateway = this.#gateways.get(name);
    if (!gateway) throw new Error(`there is no gateway '${name}'`);
    return gateway;
  }
}

/** What of a record does not depend on when it was made. */
function described(sandbox: Sandbox | null, now: number) {
  if (!sandbox) return null;
  const { phase, claim, expiries, failures, deadline, retryAt, pausedFrom, isDoomed = false } = sandbox;
  const left = (time: number) => Math.max(0, time - now);
  return {
    ...{ phase, expiries, failures, isDoomed, left: left(deadline), next: left(retryAt) },
    claim: claim && { owner: claim.owner, left: left(claim.until) },
    pausedFrom: pausedFrom === undefined ? null : left(pausedFrom),
  };
}
