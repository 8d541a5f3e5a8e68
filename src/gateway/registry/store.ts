import type { Sandbox } from '../leases/sandbox.ts';

/** A record and its version, which changes with every write. */
export interface Stored {
  readonly sandbox: Sandbox;
  readonly version: string;
}

/** What somebody has to look after. */
export interface Due {
  readonly ids: readonly string[];
  /** Until the next one, in ms; 0 or less when there are more already, infinity when there is none. */
  readonly nextInMs: number;
}

/**
 * Where records are kept. It knows nothing of what they mean but when somebody has to look after them; whoever writes
 * names the version that he has read, so that of two who change the same record one has to look again.
 */
export interface Store extends AsyncDisposable {
  /** Whether no other gateway can use it at the same time. */
  readonly exclusive: boolean;
  /** The record, and the clock that all gateways share (Unix ms). */
  read(id: string): Promise<{ readonly stored: Stored | null; readonly now: number }>;
  /** Writes when the version is still `expected` (null: there is no record); null removes it. False: it was not. */
  write(id: string, sandbox: Sandbox | null, expected: string | null): Promise<boolean>;
  /** All of them, in no order. */
  list(): Promise<readonly Sandbox[]>;
  /** At most `limit` ids, the longest due first. */
  due(limit: number): Promise<Due>;
}
