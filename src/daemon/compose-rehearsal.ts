import { randomUUID } from 'node:crypto';
import type { Server } from 'node:http';
import pino from 'pino';
import { limited } from '../base/abort.ts';
import { Connections } from '../base/connections.ts';
import { HeldOutput } from '../base/held-output.ts';
import { Repeated } from '../base/repeated.ts';
import { Transfers } from '../base/tally.ts';
import { App, type AppOptions, type AppServices } from './app.ts';
import { keepSettings } from './compose-handover.ts';
import { metadataSource } from './compose-init.ts';
import { RehearsedInit } from './compose-rehearsed-init.ts';
import type { Config } from './config.ts';
import { addressOfDefaultRoute } from './os/default-route.ts';
import { readListeningSockets } from './os/listening-sockets.ts';
import { RecordStore } from './os/record-store.ts';
import { rehearse, type Understudy } from './rehearsal.ts';
import { StreamPlaces } from './rpc/stream-places.ts';
import type { WarmUp } from './services/collapse/collapse.ts';
import { Guest } from './services/guest/guest.ts';
import { Forwards } from './services/ports/forwards.ts';
import { WorkloadCgroups } from './services/process/cgroups.ts';
import { processLog } from './services/process/process-log.ts';
import { ProcessTable } from './services/process/table.ts';

type Options = Omit<AppOptions, 'warmUp'>;
/** Rehearses the first calls of a server. */
export type WarmUpOf = (server: Server, ...how: Parameters<WarmUp>) => Promise<void>;

const NEVER = new AbortController().signal;
/** Processes, streams and connections that a rehearsal may have at a time. */
const PLACES = 8;
/** Of a buffer from Node's pool. */
const SMALL_BYTES = 1024;
/** Until the next run of background work that does nothing, in milliseconds. */
const WAIT_MS = 1000;
/** Limit of a read of the metadata, in milliseconds. */
const METADATA_MS = 25;

/** What rehearses the first calls of `server` before a pause: see `rehearse`. */
export function createWarmUp(config: Config, services: AppServices, options: Options): WarmUpOf {
  // Kept: its code and its objects are those that the first callers need.
  let understudy: Promise<Understudy> | null = null;
  return async (server, signal, isAgain) => {
    understudy ??= createUnderstudy(config, services, options);
    // An optimisation only: tried again at the next pause.
    const ready = await understudy.catch(() => null);
    if (ready) await rehearse(server, options.connections, ready, isAgain, signal);
    else understudy = null;
  };
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
  const { users, lanes } = services.entries;
  const { unread } = options;
  const guest = new Guest(users);
  const output = new HeldOutput(() => {});
  const logger = pino({ level: config.logLevel }, output);
  const rehearsed = new RehearsedInit(config, { guest, lanes, logger });
  const { init, volumes } = rehearsed;
  const observer = processLog(logger, config);
  // Nobody is told of them.
  const records = new RecordStore(null, {}, () => {}, config.notifySocket !== null);
  const places = { ...config, lanes, unread, observer, maxProcesses: PLACES };
  // In the daemon's own cgroup: those of the workload are frozen.
  const processes = new ProcessTable(guest, WorkloadCgroups.create(null), places, records);
  const [uploads, downloads] = [new Transfers(), new Transfers()];
  const ownServices = { ...services, guest, processes, uploads, downloads, init };
  const app = new App(ownServices, {
    ...options,
    logger,
    warmUp: async () => {},
    places: new StreamPlaces(PLACES),
    connections: new Connections(PLACES),
  });
  await app.load();
  keepSettings({ guest, init, volumes, records });
  const kill = async () => {
    for (const process of processes.list()) process.kill();
    app.dropBuffers();
    // Leaves no timer.
    output.hold();
    output.delayNext(0);
    await rehearsed[Symbol.asyncDispose]();
  };
  const caller = {
    token: randomUUID(),
    prefix: config.namePrefix,
    get initMembers() {
      return services.init.lastMembers;
    },
  };
  return {
    ...{ server: app.server, caller, kill },
    asResumed: () => {
      output.release();
      output.delayNext(WAIT_MS);
      replaceRecord(records);
      return rehearsed.renew();
    },
    besides: () => besides(config),
  };
}

/** As a process does that has ended. */
function replaceRecord(records: RecordStore): void {
  const record = records.record();
  record.set({});
  record.set({});
  record.drop();
}

/** Reads what is read after a resume, without effects: the metadata, the guest's address and the listening sockets. */
async function besides({ metadataService }: Config): Promise<void> {
  // Uses up Node's pool of small buffers: the first calls may be those that make it anew.
  for (let size = 0; size < Buffer.poolSize; size += SMALL_BYTES) Buffer.allocUnsafe(SMALL_BYTES);
  // The waits of background work: its own timers may not expire before the pause.
  using _ = new Repeated(null, async () => WAIT_MS);
  using forwards = new Forwards({
    ...{ steering: null, steeringObstacle: null, maxPorts: 0 },
    read: readListeningSockets,
    address: async () => (await addressOfDefaultRoute()) ?? '127.0.0.1',
    ownPort: () => 0,
    isPaused: () => false,
    onChange: () => {},
    onFailure: () => {},
  });
  await forwards.look();
  // Fails where there is no service.
  if (metadataService) await limited(METADATA_MS, NEVER, metadataSource(metadataService)).catch(() => {});
}
