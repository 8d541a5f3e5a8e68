import { type Client, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { Filesystem } from '../../../src/gen/filesystem/filesystem_pb.js';
import { ListScope, Process, type ProcessInfo } from '../../../src/gen/process/process_pb.js';

export { byPid, byTag, type Transcript, transcribe } from '../../../src/conformance/suite/transcript.ts';

/** The generated clients of a daemon, over HTTP/1.1 in one codec. */
export interface Clients {
  readonly process: Client<typeof Process>;
  readonly filesystem: Client<typeof Filesystem>;
}

export function connectTo(url: string, codec: 'json' | 'binary' = 'json'): Clients {
  const transport = createConnectTransport({
    baseUrl: url,
    httpVersion: '1.1',
    useBinaryFormat: codec === 'binary',
  });
  return { process: createClient(Process, transport), filesystem: createClient(Filesystem, transport) };
}

/** Every process of the guest, in the order of their ids, which is not that of their starts once those have begun anew. */
export async function listGuest({ process }: Clients, usage = false): Promise<readonly ProcessInfo[]> {
  const all: ProcessInfo[] = [];
  for (let truncated = true; truncated; ) {
    const afterPid = all.at(-1)?.pid ?? 0;
    const answer = await process.list({ scope: ListScope.GUEST, usage, afterPid });
    all.push(...answer.processes);
    truncated = answer.truncated;
  }
  return all;
}
