// A program of its own: touches a network file system for the daemon, so that one which hangs takes this process
// along and not the daemon. Talks with `NetworkProcess` over its IPC channel.
import { statfs } from 'node:fs/promises';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { nameProcess } from '../../../base/main.ts';
import { type BytePath, pathBuffer } from '../../os/byte-path.ts';
import { KernelWatches } from './kernel-watches.ts';
import { MergedWatch } from './network-merged-watch.ts';
import type { Report, Request, SentError } from './network-protocol.ts';

const ALIVE_MS = 1000;

nameProcess('envd');
const kernel = new KernelWatches();
const watches = new Map<number, MergedWatch>();
const roots = new Map<number, BytePath>();

function report(message: Report): void {
  if (process.connected) process.send?.(message);
}

function describe(error: unknown): SentError {
  return error instanceof EnvdError
    ? { kind: error.kind, message: error.message }
    : { kind: 'internal', message: messageOf(error) };
}

async function start({ id, root, recursive }: Request & { type: 'start' }): Promise<void> {
  const ended = (error: unknown) => {
    watches.delete(id);
    roots.delete(id);
    report({ type: 'ended', id, error: error === null ? null : describe(error) });
  };
  const tell = (events: (Report & { type: 'events' })['events']) => report({ type: 'events', id, events });
  const watch = new MergedWatch({ kernel, root, recursive, tell, ended });
  watches.set(id, watch);
  roots.set(id, root);
  try {
    await watch.start();
    report({ type: 'started', id });
  } catch (error) {
    watch[Symbol.dispose]();
    ended(error);
  }
}

function stop(id: number): void {
  watches.get(id)?.[Symbol.dispose]();
  watches.delete(id);
  roots.delete(id);
}

/** A file system that does not answer keeps this from being said. */
async function sayAlive(): Promise<void> {
  for (const root of new Set(roots.values())) await statfs(pathBuffer(root)).catch(() => {});
  report({ type: 'alive' });
  setTimeout(() => void sayAlive(), ALIVE_MS);
}

process.on('message', (request: Request) => {
  if (request.type === 'start') void start(request);
  else stop(request.id);
});
process.on('disconnect', () => process.exit(0));
void sayAlive();
