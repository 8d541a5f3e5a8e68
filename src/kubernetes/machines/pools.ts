import type { V1Pod } from '@kubernetes/client-node';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { Repeated } from '../../base/repeated.ts';
import { apiStatusOf, type Cluster } from '../cluster/cluster.ts';
import { podNameOf } from '../pods/claims.ts';
import { REVISION, TEMPLATE } from '../pods/labels.ts';
import {
  formerAddresses,
  isOver,
  isReady,
  isTaken,
  isWarm,
  labelOf,
  nameOf,
  reasonOf,
} from '../pods/state.ts';
import { type Template, warmPod } from '../pods/template.ts';
import { choose, isWanted } from './pool-choice.ts';
import type { Templates } from './templates.ts';
import { Versions } from './versions.ts';

/** Pools are compared with their templates at least this often, in ms, and soon after each change. */
const INTERVAL_MS = 10_000;
/** Changes that come in a burst are looked at together, in ms. */
const SETTLE_MS = 20;
/**
 * After a Pod was taken, the pool is filled again after this time, in ms: the start of a Pod takes the processors that the first command
 * of the sandbox needs.
 */
const REST_MS = 1000;
/** After a Pod of a pool has failed, the next one is made after this time, in ms, which doubles with each failure in a row. */
const FIRST_DELAY_MS = 1000;
const MOST_DELAY_MS = 300_000;

export interface PoolTally {
  claimed: number;
  /** Creations that found no Pod that was ready. */
  missed: number;
  made: number;
  removed: number;
  failed: number;
}

interface Backoff {
  readonly delayMs: number;
  readonly until: number;
}

/**
 * Keeps Pods ready for templates. Several programs may keep the same pools, without a leader: a Pod of a pool has a name that follows
 * from its template and a number, so two programs that miss the same one make it once. What is removed from a pool is removed only
 * if nobody has claimed it meanwhile.
 */
export class Pools implements Disposable {
  readonly tally: PoolTally = { claimed: 0, missed: 0, made: 0, removed: 0, failed: 0 };
  readonly #cluster: Cluster;
  readonly #templates: Templates;
  readonly #most: number;
  readonly #keepsDisks: boolean;
  readonly #logger: Logger;
  /** The names of Pods that a creation of this program is about to claim. */
  readonly #taken = new Set<string>();
  readonly #backoffs = new Map<string, Backoff>();
  readonly #versions = new Versions();
  readonly #rounds: Repeated;
  #soon: NodeJS.Timeout | null = null;
  #rest: NodeJS.Timeout | null = null;
  #round: Promise<void> | null = null;

  /**
   * @param most so many Pods of pools may start at a time
   * @param keepsDisks claims of Pods may stay, and then have the names of Pods that are gone
   */
  constructor(cluster: Cluster, templates: Templates, most: number, keepsDisks: boolean, logger: Logger) {
    this.#cluster = cluster;
    this.#templates = templates;
    this.#most = most;
    this.#keepsDisks = keepsDisks;
    this.#logger = logger;
    this.#rounds = new Repeated(INTERVAL_MS, async () => {
      await this.#compare();
      return INTERVAL_MS;
    });
    const soon = () => {
      this.#soon ??= setTimeout(() => {
        this.#soon = null;
        void this.#compare();
      }, SETTLE_MS).unref();
    };
    // Another program may have taken it.
    cluster.pods.on('change', (name) => {
      const pod = cluster.pods.get(name);
      if (pod && isTaken(pod)) this.#restNow();
    });
    // What changes before both are current is compared when they are.
    for (const watched of [cluster.pods, cluster.templates]) watched.on('change', soon).on('state', soon);
  }

  [Symbol.dispose](): void {
    this.#rounds[Symbol.dispose]();
    for (const timer of [this.#soon, this.#rest]) if (timer) clearTimeout(timer);
  }

  #restNow(): void {
    this.#rest ??= setTimeout(async () => {
      await this.#round;
      this.#rest = null;
      await this.#compare();
    }, REST_MS).unref();
  }

  /** The Pods of pools, ready and not. */
  get size(): { readonly ready: number; readonly starting: number } {
    const warm = this.#cluster.pods.list().filter((pod) => isWarm(pod) && !isOver(pod));
    const ready = warm.filter(isReady).length;
    return { ready, starting: warm.length - ready };
  }

  /** Gives a ready Pod of the template to a sandbox, on none of these nodes. Returns null if there is none. */
  async claim(
    template: Template,
    sandbox: string,
    owner: string | null,
    drained: readonly string[],
  ): Promise<V1Pod | null> {
    for (;;) {
      const pod = this.#pick(template, sandbox, drained);
      if (pod === null) break;
      this.#taken.add(nameOf(pod));
      try {
        const claimed = await this.#cluster.claim(pod, sandbox, owner);
        // Another program may have been asked to create the same sandbox.
        const ours = claimed ? [claimed] : await this.#cluster.podsOf(sandbox);
        const found = ours.find((each) => !isOver(each));
        if (!found) continue;
        this.tally.claimed++;
        return found;
      } finally {
        this.#release(pod);
      }
    }
    if (template.warm > 0) this.tally.missed++;
    return null;
  }

  #pick(template: Template, sandbox: string, drained: readonly string[]): V1Pod | null {
    const former = formerAddresses(this.#cluster.pods.list());
    const free = this.#warmOf(template).filter(
      (pod) =>
        isReady(pod) &&
        !this.#taken.has(nameOf(pod)) &&
        !drained.includes(pod.spec?.nodeName ?? '') &&
        !former.has(pod.status?.podIP ?? ''),
    );
    return choose(free, sandbox);
  }

  /** A name stays taken until the watch has told of the change, because until then the Pod still looks warm. */
  #release(pod: V1Pod): void {
    const name = nameOf(pod);
    const uid = pod.metadata?.uid;
    const isStale = (now: V1Pod | undefined) =>
      now !== undefined && now.metadata?.uid === uid && isWarm(now) ? undefined : true;
    void this.#cluster.pods
      .until(name, AbortSignal.timeout(INTERVAL_MS), isStale)
      .catch(() => {})
      .finally(() => this.#taken.delete(name));
  }

  #warmOf({ id, revision }: Template): readonly V1Pod[] {
    return this.#cluster.pods
      .list()
      .filter(
        (pod) =>
          isWarm(pod) && !isOver(pod) && labelOf(pod, TEMPLATE) === id && labelOf(pod, REVISION) === revision,
      );
  }

  /** Compares the pools with their templates, one round at a time. Never rejects. */
  async #compare(): Promise<void> {
    if (!this.#cluster.pods.isCurrent || !this.#cluster.templates.isCurrent) return;
    this.#round ??= this.#once().finally(() => {
      this.#round = null;
    });
    await this.#round;
  }

  async #once(): Promise<void> {
    try {
      const templates = this.#templates.all();
      // Pods that are taken during a round must not keep the later templates from being filled.
      const rests = this.#rest !== null;
      await this.#clear(templates);
      for (const template of rests ? [] : templates) await this.#fill(template);
    } catch (error) {
      this.#logger.warn(
        { err: error },
        'the pools could not be compared with their templates: that is tried again',
      );
    }
  }

  /** Removes Pods of pools that have failed, whose template is gone or has changed, and those beyond its number. */
  async #clear(templates: readonly Template[]): Promise<void> {
    const known = new Map(templates.map((each) => [each.id, each]));
    const kept = new Map<string, number>();
    // Programs agree about what is beyond the number: ready Pods stay, and of those the first ones.
    const order = (pod: V1Pod) => `${isReady(pod) ? 0 : 1} ${nameOf(pod)}`;
    const warm = this.#cluster.pods.list().filter((pod) => isWarm(pod) && !pod.metadata?.deletionTimestamp);
    for (const pod of [...warm].sort((a, b) => (order(a) < order(b) ? -1 : 1))) {
      const id = labelOf(pod, TEMPLATE) ?? '';
      const template = known.get(id);
      // A fault in a template that is being edited must not end its pool.
      if (!template && this.#templates.find(id) !== null) continue;
      if (isOver(pod)) this.#delay(id, `${nameOf(pod)}: ${reasonOf(pod)}`);
      const count = kept.get(id) ?? 0;
      if (isWanted(pod, template, count)) kept.set(id, count + 1);
      else if (this.#versions.isOthers(pod, template)) continue;
      else if (await this.#cluster.remove(pod, 'unchanged')) this.tally.removed++;
    }
    this.#versions.learn(templates, warm);
  }

  #delay(id: string, reason: string): void {
    this.tally.failed++;
    const last = this.#backoffs.get(id)?.delayMs ?? FIRST_DELAY_MS / 2;
    const delayMs = Math.min(2 * last, MOST_DELAY_MS);
    this.#backoffs.set(id, { delayMs, until: monotonicMs() + delayMs });
    this.#logger.warn(
      { template: id, reason, delayMs },
      'a Pod of a pool has failed: the next one is made later',
    );
  }

  async #fill(template: Template): Promise<void> {
    const warm = this.#warmOf(template);
    const starting = warm.filter((pod) => !isReady(pod)).length;
    if (warm.length > starting && warm.length >= template.warm) this.#backoffs.delete(template.id);
    const count = Math.min(template.warm - warm.length, this.#most - starting);
    if (count <= 0 || monotonicMs() < (this.#backoffs.get(template.id)?.until ?? 0)) return;
    const names = await this.#names();
    for (let slot = 0, made = 0; made < count; slot++) {
      const pod = warmPod(template, slot);
      if (names.has(nameOf(pod))) continue;
      made++;
      try {
        await this.#cluster.create(pod);
        this.tally.made++;
      } catch (error) {
        // Another program has made the Pod.
        if (apiStatusOf(error) === 409) continue;
        this.#delay(template.id, messageOf(error));
        return;
      }
    }
  }

  /** Returns the names that no new Pod of a pool can have. */
  async #names(): Promise<ReadonlySet<string>> {
    const pods = this.#cluster.pods.list().map(nameOf);
    // They are read after the Pods, because a claim is kept before its Pod is removed.
    const claims = this.#keepsDisks ? await this.#cluster.claimsOf(null) : [];
    return new Set([...pods, ...claims.map(podNameOf)]);
  }
}
