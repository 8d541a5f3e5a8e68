import type { MessageInitShape } from '@bufbuild/protobuf';
import type { ProcessEvent_EndEvent, StartRequestSchema } from '../../../src/gen/process/process_pb.js';
import { type Clients, connectTo } from './clients.ts';

type Request = MessageInitShape<typeof StartRequestSchema>;
type Kept = NonNullable<Request['keepOutput']>;

/** What `GET /processes/{process}/result` answers. */
export interface Result {
  readonly pid: number;
  readonly tag: string | null;
  readonly end: (Pick<ProcessEvent_EndEvent, 'exitCode' | 'status'> & { readonly reason: string }) | null;
  readonly streams: Readonly<Record<string, { readonly droppedBytes: number; readonly bytes: number }>>;
  readonly complete: boolean;
  readonly error: string | null;
  readonly keptForSeconds: number | null;
}

/** Starts a shell whose output is kept, and leaves it. Returns its pid. */
export async function startKept(
  daemon: string | Clients,
  script: string,
  keepOutput: Kept = {},
  more: Pick<Request, 'tag' | 'pty' | 'startId'> = {},
): Promise<number> {
  const process = { cmd: 'bash', args: ['-c', script], cwd: '/' };
  const clients = typeof daemon === 'string' ? connectTo(daemon, 'binary') : daemon;
  const events = clients.process.start({ process, keepOutput, ...more });
  for await (const { event } of events) {
    if (event?.event.case !== 'start') continue;
    // The answer is left here, which ends it.
    return event.event.value.pid;
  }
  throw new Error('no start');
}

export async function resultOf(url: string, name: string | number): Promise<Result> {
  const response = await fetch(`${url}/processes/${name}/result`);
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Result;
}

export function outputOf(
  url: string,
  name: string | number,
  query = '',
  init: RequestInit = {},
): Promise<Response> {
  return fetch(`${url}/processes/${name}/output${query}`, init);
}
