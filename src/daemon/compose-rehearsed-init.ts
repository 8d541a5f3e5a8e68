import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { EnvdError } from '../base/errors.ts';
import { ExclusiveLock, SerialQueue } from '../base/exclusion.ts';
import { createMetadataReader, pausedBy } from './compose-init.ts';
import { createLogCollector } from './compose-log.ts';
import { RehearsedCgroups } from './compose-rehearsed-cgroups.ts';
import type { Config } from './config.ts';
import type { Lanes } from './os/lanes.ts';
import { WallClock } from './os/machine.ts';
import type { LogCollector } from './services/collector/log-collector.ts';
import { LogQueue } from './services/collector/log-queue.ts';
import { FilesystemFreezer } from './services/freeze/filesystem-freezer.ts';
import { WriteGate } from './services/freeze/write-gate.ts';
import type { Guest } from './services/guest/guest.ts';
import { SYSTEM_TRUST_STORE } from './services/init/ca-bundle.ts';
import { Identity } from './services/init/identity.ts';
import { Init } from './services/init/init.ts';
import { type Metadata, NO_METADATA } from './services/init/metadata.ts';
import type { MetadataReader } from './services/init/metadata-reader.ts';
import { MetadataRoute } from './services/init/metadata-route.ts';
import { initSteps } from './services/init/steps.ts';
import { SYSTEM_TOOLS, Volumes } from './services/init/volumes.ts';

/** How long a thaw takes that is rehearsed, in milliseconds. */
const THAW_MS = 3;

/** Of the understudy. */
interface Parts {
  readonly guest: Guest;
  readonly lanes: Lanes;
  readonly logger: Logger;
}

/**
 * An /init with the real parts, whose steps authorise, thaw what nothing runs in, and set the members of `guest`; the machine
 * stays as it is. Rounds are of two kinds in turn: of a metadata service that answers at once, after a freeze of the workload; and
 * of one that fails at once, after a freeze of everything.
 */
export class RehearsedInit implements AsyncDisposable {
  readonly init: Init;
  readonly volumes: Volumes;
  readonly #config: Config;
  readonly #guest: Guest;
  readonly #logger: Logger;
  readonly #identity: Identity;
  readonly #route: MetadataRoute | null;
  readonly #collector: LogCollector | null;
  readonly #cgroups: RehearsedCgroups;
  /** Of the freezer of the file system. */
  readonly #freezes = new SerialQueue('rehearse a thaw');
  #metadata: MetadataReader | null = null;
  #isSecond = false;
  /** What is being written; null: nothing is to be written any more. */
  #published: Promise<void> | null = null;

  constructor(config: Config, { guest, lanes, logger }: Parts) {
    const { metadataService: url, runtimeDirectory } = config;
    const directory = join(runtimeDirectory, 'rehearsal');
    const common = { lock: new ExclusiveLock(), onWatchdog: () => {} };
    this.#config = config;
    this.#guest = guest;
    this.#logger = logger;
    this.#cgroups = new RehearsedCgroups(directory, common);
    const filesystemFreezer = createFilesystemFreezer(config, { ...common, queue: this.#freezes });
    const pause = { ...common, freezer: this.#cgroups.freezer, filesystemFreezer };
    this.#identity = new Identity(guest, join(directory, 'identity'), config.namePrefix);
    this.#route = url && MetadataRoute.to(url);
    // Nothing is ever sent.
    this.#collector = createLogCollector(
      { logCollector: 'off', metadataService: url },
      { queue: new LogQueue(0), logger, isPaused: pausedBy(pause), refresh: () => {} },
    );
    this.volumes = new Volumes(SYSTEM_TOOLS, join(runtimeDirectory, 'volumes'), lanes);
    this.init = new Init(
      initSteps({
        ...{ guest, volumes: this.volumes, freezer: this.#cgroups.freezer },
        trustStore: SYSTEM_TRUST_STORE,
        hosts: { file: '', name: '' },
        metadata: url && {
          check: async (...call) => (await this.#metadata?.check(...call)) ?? false,
          refresh: () => this.#metadata?.refresh(),
        },
        filesystemFreezer,
        clock: new WallClock(() => {}),
        onClockError: () => {},
        eventsVariable: '',
      }),
    );
  }

  /** As after a pause: no token, earlier reads no longer count, and all is frozen. */
  async renew(): Promise<void> {
    this.#metadata?.[Symbol.dispose]();
    this.#isSecond = !this.#isSecond;
    this.#guest.accessToken = null;
    // In turn as if the file system may be frozen: one call of /init waits for that, another for nothing.
    if (this.#isSecond) void this.#freezes.run(() => delay(THAW_MS));
    this.#published ??= Promise.resolve();
    if (this.#config.metadataService) this.#readAnew();
    await this.#cgroups.renew(this.#isSecond);
  }

  /** Removes all files; `renew` makes them anew. */
  async [Symbol.asyncDispose](): Promise<void> {
    const published = this.#published;
    this.#published = null;
    this.#metadata?.[Symbol.dispose]();
    await published;
    this.#cgroups[Symbol.dispose]();
  }

  #readAnew(): void {
    const route = this.#route;
    this.#metadata = createMetadataReader({
      ...{ isOptional: true, firstMs: null },
      identity: { publish: (metadata) => this.#publish(metadata) },
      collector: this.#collector,
      // Nothing is wrong with it.
      route: route && { learnBy: (read) => route.learnBy(read), repair: async () => null },
      logger: this.#logger,
      read: async () => {
        if (this.#isSecond) throw new EnvdError('unavailable', 'the metadata service fails in this round');
        return { ...NO_METADATA, sandboxID: randomUUID() };
      },
    });
    this.#metadata.forget();
  }

  async #publish(metadata: Pick<Metadata, 'sandboxID' | 'templateID'>): Promise<void> {
    if (this.#published === null) return;
    const published = this.#identity.publish(metadata);
    this.#published = published.catch(() => {});
    await published;
  }
}

function createFilesystemFreezer(
  { fsfreezePath: path, runtimeDirectory }: Config,
  common: Pick<ConstructorParameters<typeof FilesystemFreezer>[0], 'lock' | 'queue' | 'onWatchdog'>,
): FilesystemFreezer {
  return new FilesystemFreezer({
    ...common,
    path,
    recordFile: join(runtimeDirectory, 'rehearsal.json'),
    ownDirectories: [],
    gate: new WriteGate(),
    onFrozen: () => {},
  });
}
