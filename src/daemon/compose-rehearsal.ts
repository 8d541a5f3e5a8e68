import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import pino from 'pino';
import { limited } from '../base/abort.ts';
import { Connections } from '../base/connections.ts';
import { EnvdError } from '../base/errors.ts';
import { ExclusiveLock } from '../base/exclusion.ts';
import { Transfers } from '../base/tally.ts';
import { App, type AppOptions, type AppServices } from './app.ts';
import type { Config } from './config.ts';
import { eachListeningSocket, readListeningSockets } from './os/listening-sockets.ts';
import { wallClock } from './os/machine.ts';
import { rehearse, type Understudy } from './rehearsal.ts';
import { StreamServer } from './rpc/connect-stream.ts';
import { StreamPlaces } from './rpc/stream-places.ts';
import { createFileServices } from './services/files/services.ts';
import { FilesystemFreezer } from './services/freeze/filesystem-freezer.ts';
import { Freezer } from './services/freeze/freezer.ts';
import { WriteGate } from './services/freeze/write-gate.ts';
import { Guest } from './services/guest/guest.ts';
import { SYSTEM_TRUST_STORE } from './services/init/ca-bundle.ts';
import { Init } from './services/init/init.ts';
import { NO_METADATA, readMetadata } from './services/init/metadata.ts';
import { MetadataReader } from './services/init/metadata-reader.ts';
import { initSteps } from './services/init/steps.ts';
import { WorkloadCgroups } from './services/process/cgroups.ts';
import { processLog } from './services/process/process-log.ts';
import { ProcessTable } from './services/process/table.ts';

type Options = Omit<AppOptions, 'warmUp'>;

const NEVER = new AbortController().signal;
/** Processes, streams and connections that a rehearsal may have at a time. */
const PLACES = 8;
/** Limit of a read of the metadata, in milliseconds. */
const METADATA_MS = 25;

/** Builds the HTTP server of the daemon, which rehearses its first calls before a pause: see `rehearse`. */
export function buildRehearsedApp(config: Config, services: AppServices, options: Options): App {
  // Kept: its code and its objects are those that the first callers need.
  let understudy: Promise<Understudy> | null = null;
  const warmUp = async (signal: AbortSignal) => {
    understudy ??= createUnderstudy(config, services, options);
    await rehearse(app.server, options.connections, await understudy, signal);
  };
  const app = new App(services, { ...options, warmUp });
  return app;
}

/**
 * A second daemon with the same code on the same machine, but with settings, processes, a log and counters of its own,
 * and with steps of /init that change nothing.
 */
async function createUnderstudy(
  config: Config,
  services: AppServices,
  options: Options,
): Promise<Understudy> {
  const { entries, gate } = services;
  const guest = new Guest(entries.users);
  const token = randomUUID();
  const metadata = new RehearsedMetadata();
  const logger = pino({ level: config.logLevel }, { write() {} });
  const observer = processLog(logger, config);
  const { lanes } = entries;
  const { unread } = options;
  // In the daemon's own cgroup: those of the workload are frozen.
  const processes = new ProcessTable(guest, WorkloadCgroups.create(null), {
    ...config,
    lanes,
    unread,
    observer,
    maxProcesses: PLACES,
  });
  const [uploads, downloads] = [new Transfers(), new Transfers()];
  const app = new App(
    {
      ...services,
      guest,
      processes,
      uploads,
      downloads,
      init: initWithoutEffects(config, guest, metadata),
      streams: new StreamServer(unread),
      files: createFileServices(guest, { ...entries, gate, uploads }),
    },
    {
      ...options,
      logger,
      warmUp: async () => {},
      places: new StreamPlaces(PLACES),
      connections: new Connections(PLACES),
    },
  );
  await app.load();
  const asResumed = () => {
    guest.accessToken = null;
    metadata.renew();
  };
  const kill = () => {
    metadata[Symbol.dispose]();
    for (const process of processes.list()) process.kill();
  };
  return { server: app.server, token, asResumed, kill, besides: () => besides(config) };
}

/** Reads what is read after a resume, without effects: the metadata and the listening sockets. */
async function besides({ metadataService }: Config): Promise<void> {
  eachListeningSocket(await readListeningSockets('127.0.0.1'), () => {});
  // Fails where there is no service.
  if (metadataService)
    await limited(METADATA_MS, NEVER, (signal) => readMetadata(metadataService, signal)).catch(() => {});
}

/** A reader of metadata whose service fails at once in every second round, and answers at once in the others. */
class RehearsedMetadata implements Disposable {
  #reader: MetadataReader | null = null;
  /** Whether this is one of every second round. */
  fails = false;

  /** As after a pause: earlier reads no longer count. */
  renew(): void {
    this[Symbol.dispose]();
    this.fails = !this.fails;
    const read = async () => {
      if (this.fails) throw new EnvdError('unavailable', 'the metadata service fails in this round');
      return NO_METADATA;
    };
    const nothing = { onRead: async () => {}, onFailure: () => {} };
    this.#reader = new MetadataReader({ isOptional: true, read, ...nothing });
    this.#reader.forget();
  }

  check: MetadataReader['check'] = async (...call) => (await this.#reader?.check(...call)) ?? false;

  refresh(): void {
    this.#reader?.refresh();
  }

  /** It reads no longer. */
  [Symbol.dispose](): void {
    this.#reader?.[Symbol.dispose]();
  }
}

/** Steps that authorise, thaw what is never frozen, and set the members of `guest`; the machine stays as it is. */
function initWithoutEffects(config: Config, guest: Guest, metadata: RehearsedMetadata): Init {
  const recordFile = join(config.runtimeDirectory, 'rehearsal.json');
  const common = { recordFile, lock: new ExclusiveLock(), onWatchdog: () => {} };
  const filesystemFreezer = new FilesystemFreezer({
    ...common,
    path: config.fsfreezePath,
    ownDirectories: [],
    gate: new WriteGate(),
    onFrozen: () => {},
  });
  return new Init(
    initSteps({
      guest,
      trustStore: SYSTEM_TRUST_STORE,
      hosts: { file: '', name: '' },
      metadata: config.metadataService ? metadata : null,
      freezer: new Freezer({ ...common, workload: [], hierarchy: null, obstacle: null }),
      // In turn, as if it had to be thawed: one call waits for that, another for nothing.
      filesystemFreezer: {
        get mayBeFrozen() {
          return metadata.fails;
        },
        release: () => filesystemFreezer.release(),
      },
      clock: { nowNs: () => wallClock.nowNs(), setNs: () => {} },
      onClockError: () => {},
      eventsVariable: '',
      volumes: { mount: async () => {} },
    }),
  );
}
