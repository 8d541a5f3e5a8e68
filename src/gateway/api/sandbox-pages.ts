import { setImmediate as turn } from 'node:timers/promises';
import type { Caller } from '../access/keys.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import type { Position, Registry } from '../registry/registry.ts';
import type { ListPage } from './lists.ts';
import { isOpenTo, metadataBytesOf } from './rules.ts';
import { Turns } from './turns.ts';

/** A list reads this many records before it yields to other requests. */
const READ_AT_A_TIME = 100;
/** A page with more than one sandbox has at most this much metadata, in bytes of JSON. */
const PAGE_BYTES = 1024 ** 2;

/** A page of a list. `next` is the last sandbox of this page; it is null on the last page. */
export interface Listed {
  readonly sandboxes: readonly Sandbox[];
  readonly next: Position | null;
}

/** Lists sandboxes, for each client one list at a time. */
export class SandboxPages {
  readonly #registry: Pick<Registry, 'page'>;
  readonly #turns = new Turns();

  constructor(registry: Pick<Registry, 'page'>) {
    this.#registry = registry;
  }

  /**
   * Returns a page of the sandboxes that the caller may see. Throws an error with the status 429 when too many lists of a
   * client wait.
   */
  page(caller: Caller | null, page: ListPage): Promise<Listed> {
    const list = () => this.#list(caller, page);
    return caller?.kind === 'client' ? this.#turns.take(caller.name, list) : list();
  }

  async #list(caller: Caller | null, page: ListPage): Promise<Listed> {
    const { order, limit, startedFrom, matches } = page;
    const owner = caller?.kind === 'client' ? caller.name : null;
    const found: Sandbox[] = [];
    let bytes = 0;
    let after = page.after ?? (order === 'asc' ? { startedAt: startedFrom, id: '' } : null);
    for (let size = Math.min(limit + 1, READ_AT_A_TIME); ; size = READ_AT_A_TIME) {
      const part = await this.#registry.page({ order, after, limit: size, owner });
      const recent = part.sandboxes.filter(({ startedAt }) => startedAt >= startedFrom);
      for (const sandbox of recent.filter((each) => isOpenTo(caller, each) && matches(each))) {
        bytes += metadataBytesOf(sandbox);
        const last = found.at(-1);
        if (last && (found.length === limit || bytes > PAGE_BYTES)) return { sandboxes: found, next: last };
        found.push(sandbox);
      }
      if (!part.next || (order === 'desc' && part.next.startedAt < startedFrom))
        return { sandboxes: found, next: null };
      after = part.next;
      await turn();
    }
  }
}
