import { uptime } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  type ListRequest,
  type ListResponse,
  ListResponseSchema,
  ListScope,
  type ProcessInfoSchema,
} from '../../../gen/process/process_pb.js';
import type { CallScope } from '../../http/admission/call-scope.ts';
import type { Listing } from '../../http/rpc/process.ts';
import { infoOf } from '../../http/rpc/process-messages.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import type { UserDatabase } from '../../linux/system/users.ts';
import type { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import { keptOf } from '../../services/process/lifecycle/process-config.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { ownFigures, type ProcEntry, procEntry, treeFigures } from './figures.ts';
import { nullIfRefused, StrangerFiles } from './stranger-files.ts';

/** An answer has at most this many processes of the guest, because it is encoded in one turn of the event loop. */
const MOST_LISTED = 512;
/** This many processes are read in one turn of the event loop, so that other work is not delayed. */
const LOOKS = 16;

type Info = MessageInitShape<typeof ProcessInfoSchema>;

/** The listings read these parts of the daemon. */
export interface ListedGuest {
  readonly processes: ProcessTable;
  readonly users: UserDatabase;
  readonly lanes: Lanes;
}

/** Answers List if it asks for `usage` or for the whole guest. */
export function usageListing(guest: ListedGuest): Listing {
  return (request, call) => {
    if (request.scope === ListScope.GUEST) return guestList(request, guest, call);
    return request.usage ? clientsList(guest) : null;
  };
}

/** Yields the answer in parts, each of which is encoded in one turn of the event loop. */
async function* clientsList({ processes, lanes }: ListedGuest): AsyncGenerator<{ processes: Info[] }> {
  const files = new StrangerFiles(lanes);
  const all = processes.list();
  for (let at = 0; at < all.length; at += LOOKS) {
    const infos = all.slice(at, at + LOOKS).map(async (process): Promise<Info> => {
      const { leaf } = process.state;
      const entry = await files.look(() => procEntry(process.pid)).catch(nullIfRefused);
      const usage =
        leaf === null ? entry && (await ownFigures(entry, files)) : await treeFigures(leaf, files);
      return { ...infoOf(process), ...(usage && { usage }), ...(entry && stateOf(entry)) };
    });
    yield { processes: await Promise.all(infos) };
    await nextTurn();
  }
}

async function guestList(
  { afterPid, usage }: ListRequest,
  { processes, users, lanes }: ListedGuest,
  call: CallScope,
): Promise<ListResponse> {
  const files = new StrangerFiles(lanes);
  const known = new Map(processes.list().map((process) => [process.pid, process]));
  const pids = (await files.pids()).filter((pid) => pid > afterPid);
  pids.sort((a, b) => a - b);
  const infos = await inTurns(pids.slice(0, MOST_LISTED), call, async (pid): Promise<Info | null> => {
    const entry = await files.look(() => procEntry(pid));
    if (!entry) return null;
    const command = await commandOf(entry, files);
    return {
      ...infoOf({ config: keptOf(command, false), pid, tag: tagOf(known.get(pid)) }),
      ...(usage && { usage: await ownFigures(entry, files) }),
      ...{ parent: entry.parent, user: users.names().userName(entry.uid), ...stateOf(entry) },
    };
  });
  const present = infos.filter((info) => info !== null);
  return create(ListResponseSchema, { processes: present, truncated: pids.length > MOST_LISTED });
}

/** Returns the state and the age of a process. */
function stateOf({ state, startedMs }: ProcEntry) {
  return { state, ageMillis: BigInt(Math.max(0, Math.round(uptime() * 1000 - startedMs))) };
}

const tagOf = (process: ManagedProcess | undefined) => process?.tag ?? null;

/**
 * Returns the program and its arguments. If they cannot be read, returns the name in brackets, as ps(1) shows it. Source:
 * proc_pid_cmdline(5).
 */
async function commandOf({ pid, name, isKernelThread }: ProcEntry, files: StrangerFiles) {
  const text = isKernelThread ? null : await files.read(pid, 'cmdline');
  const [command = '', ...args] = (text?.toString('utf8') ?? '').replace(/\0$/, '').split('\0');
  return { command: command || `[${name}]`, args, environment: {}, cwd: null };
}

/** Runs `work` for each item, some items at a time. Throws the reason of the signal when the call is aborted. */
async function inTurns<T, R>(
  items: readonly T[],
  call: CallScope,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += LOOKS) {
    call.throwIfAborted();
    results.push(...(await Promise.all(items.slice(at, at + LOOKS).map(work))));
    await nextTurn();
  }
  return results;
}
