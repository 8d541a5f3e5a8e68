import type { DescMethod } from '@bufbuild/protobuf';
import type { ConnectRouter } from '@connectrpc/connect';
import type { CallScope } from '../admission/call-scope.ts';
import type { Codec } from './codec.ts';

/** An RPC, whose handler serves it in each protocol. */
export interface Rpc {
  readonly method: DescMethod;
  /**
   * Serves a call in Connect's protocol with the daemon's own encoder. Resolves with the error in the response, or null. Without
   * this function, connect-node serves that protocol too.
   */
  serve?(call: CallScope, codec: Codec): Promise<unknown>;
  /**
   * Serves a call in another format that its headers ask for; null: they ask for none. Resolves as `serve`. Absent: there is no other
   * format.
   */
  serveOther?(call: CallScope): Promise<unknown> | null;
  /** Adds the RPC to connect-node, which serves the other protocols. */
  register(router: ConnectRouter): void;
}
