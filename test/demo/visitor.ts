import { type Client, createClient, type Interceptor } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { Filesystem } from '../../src/gen/filesystem/filesystem_pb.js';
import { Process } from '../../src/gen/process/process_pb.js';
import { type RestCall, restAt } from './rest.ts';
import { showRpc } from './rpc.ts';

/** A client of the daemon that shows everything it sends and receives. */
export interface Visitor {
  readonly rest: RestCall;
  readonly process: Client<typeof Process>;
  readonly filesystem: Client<typeof Filesystem>;
  /** The process service without output on the screen. */
  readonly quietly: Client<typeof Process>;
}

export function visit(url: string): Visitor {
  const transport = (...interceptors: Interceptor[]) =>
    createConnectTransport({ baseUrl: url, httpVersion: '1.1', interceptors });
  const shown = transport(showRpc);
  return {
    rest: restAt(url),
    process: createClient(Process, shown),
    filesystem: createClient(Filesystem, shown),
    quietly: createClient(Process, transport()),
  };
}
