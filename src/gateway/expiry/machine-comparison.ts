import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { MachineList } from '../hooks/list-hook.ts';
import { endSandbox, momentOf } from '../leases/ended.ts';
import { removeOrphan } from '../leases/orphan.ts';
import { hasMachine } from '../leases/sandbox.ts';
import type { Registry } from '../registry/registry.ts';

/** So many ids are looked up at a time, so that requests are served meanwhile. */
const LOOKED_UP = 64;

export interface MachineComparisonParts {
  readonly registry: Registry;
  /** Returns the machines that exist. Throws when the list is not complete. */
  readonly list: (signal: AbortSignal) => Promise<MachineList>;
  /** The time between two comparisons, in ms. */
  readonly intervalMs: number;
  /** A machine without a record is removed after this time, in ms. */
  readonly graceMs: number;
  /** If false, differences are only told. */
  readonly removes: boolean;
  /** Is called when a machine is to be removed. */
  readonly onChange: () => void;
  readonly logger: Logger;
}

/** What is wrong: `unknown` is a machine without a record, and `missing` is a record without its machine. */
export const DIFFERENCES = ['unknown', 'missing'] as const;
export type Difference = (typeof DIFFERENCES)[number];

interface Found {
  readonly difference: Difference;
  /** The time of the first comparison that has found it, in Unix ms. */
  readonly since: number;
  /** The same by `monotonicMs()`. */
  readonly foundAt: number;
  /** Why a machine that is missing has ended, if that is known. */
  readonly reason?: string;
}

/**
 * Compares the machines that exist with the registry, again and again. A difference is told when it is found in two
 * comparisons, because a machine may appear or disappear during one.
 */
export class MachineComparison {
  readonly tally = { compared: 0, failed: 0, removed: 0 };
  readonly #parts: MachineComparisonParts;
  readonly #stop = new AbortController();
  #found: ReadonlyMap<string, Found> = new Map();
  #told = new Set<string>();
  #comparedAt: number | null = null;
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: MachineComparisonParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  /** The differences that the last comparison has found. */
  get differences() {
    const at = (ms: number) => new Date(ms).toISOString();
    return {
      comparedAt: this.#comparedAt === null ? null : at(this.#comparedAt),
      differences: [...this.#found].map(([sandboxID, { difference, since, reason }]) => ({
        ...{ sandboxID, difference, since: at(since) },
        ...(reason !== undefined && { reason }),
      })),
    };
  }

  /** The numbers of differences. */
  get counts(): Readonly<Record<Difference, number>> {
    const all = [...this.#found.values()];
    const countOf = (difference: Difference) => all.filter((each) => each.difference === difference).length;
    return { unknown: countOf('unknown'), missing: countOf('missing') };
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#compare(signal).catch((error: unknown) => {
        if (signal.aborted) return;
        this.tally.failed++;
        const reason = messageOf(error);
        this.#parts.logger.warn({ reason }, 'the machines could not be compared with the registry');
      });
      await delay(this.#parts.intervalMs, undefined, { signal }).catch(() => {});
    }
  }

  async #compare(signal: AbortSignal): Promise<void> {
    const { registry, list, removes } = this.#parts;
    const [before, now] = [this.#found, Date.now()];
    const found = new Map<string, Found>();
    const add = (id: string, difference: Difference, reason?: string) => {
      const known = before.get(id);
      const isSame = known?.difference === difference;
      const { since, foundAt } = isSame ? known : { since: now, foundAt: monotonicMs() };
      found.set(id, { difference, since, foundAt, ...(reason !== undefined && { reason }) });
    };
    // The records are read first, because what is created later may be in the list, but is not missing in it.
    const expected = new Map<string, string>();
    for await (const sandbox of registry.list())
      if (hasMachine(sandbox)) expected.set(sandbox.id, momentOf(sandbox));
    const { ids, ended } = await list(signal);
    for (const id of expected.keys())
      if (!ids.has(id) && (await this.#isMissing(id))) add(id, 'missing', ended.get(id));
    const others = [...ids].filter((id) => !expected.has(id));
    for (const id of await this.#withoutRecord(others, signal)) add(id, 'unknown');
    this.#found = found;
    this.#comparedAt = now;
    this.tally.compared++;
    this.#tell(before);
    if (!removes) return;
    // Records that are lost would make all machines unknown.
    registry.assertKept();
    for (const [id, each] of found) await this.#reconcile(id, each, expected.get(id));
  }

  /** @param seen what the record was doing before the machines were listed */
  async #reconcile(id: string, { difference, foundAt, reason }: Found, seen = ''): Promise<void> {
    if (reason !== undefined) await this.#end(id, seen, reason);
    else if (difference === 'unknown' && monotonicMs() - foundAt >= this.#parts.graceMs)
      await this.#remove(id);
  }

  /** Each machine has had its record before it was made, so one that is being created has its record now. */
  async #withoutRecord(ids: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
    const without: string[] = [];
    for (let first = 0; first < ids.length; first += LOOKED_UP) {
      signal.throwIfAborted();
      const part = ids.slice(first, first + LOOKED_UP);
      const records = await Promise.all(part.map((id) => this.#parts.registry.find(id)));
      without.push(...part.filter((_, index) => !records[index]?.sandbox));
    }
    return without;
  }

  /** The machine may have ended in order since the records were read. */
  async #isMissing(id: string): Promise<boolean> {
    const { sandbox } = await this.#parts.registry.find(id);
    return sandbox !== null && hasMachine(sandbox);
  }

  #tell(before: ReadonlyMap<string, Found>): void {
    const told = new Set<string>();
    for (const [sandboxID, { difference, since, reason }] of this.#found) {
      if (before.get(sandboxID)?.difference !== difference) continue;
      told.add(sandboxID);
      if (this.#told.has(sandboxID)) continue;
      const line = { sandboxID, difference, since: new Date(since).toISOString(), reason };
      this.#parts.logger.warn(line, 'the machines and the registry differ');
    }
    this.#told = told;
  }

  async #end(id: string, seen: string, reason: string): Promise<void> {
    let isMine = false;
    await this.#parts.registry.change(id, (current, now) => {
      const next = endSandbox(current, seen, reason, now);
      isMine = next !== current;
      return next;
    });
    if (isMine) this.#parts.logger.warn({ sandboxID: id, reason }, 'the machine of a sandbox has ended');
  }

  async #remove(id: string): Promise<void> {
    const { registry, onChange, logger } = this.#parts;
    let isMine = false;
    await registry.put(id, (current, now) => {
      isMine = current === null;
      return current ?? removeOrphan(id, now);
    });
    if (!isMine) return;
    this.tally.removed++;
    logger.warn({ sandboxID: id }, 'a machine without a record is removed');
    onChange();
  }
}
