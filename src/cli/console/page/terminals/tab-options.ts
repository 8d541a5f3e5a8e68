import type { Observable } from '../state/observable.ts';
import type { SandboxLease } from '../state/sandbox-lease.ts';
import type { RunningSource, StartSource } from '../wire/output-source.ts';
import type { KeptTab } from './kept-tab.ts';

/** What is shown of a terminal beside its screen. */
export interface TabState {
  readonly title: string;
  /** What the user calls it; null: by its title. */
  readonly name: string | null;
  readonly status: 'starting' | 'running' | 'waiting' | 'ended';
  readonly pid: number | null;
  /** What the console says of it. */
  readonly note: string;
  /** What a program wants to be copied; null: nothing. */
  readonly offered: string | null;
}

export interface TabOptions {
  readonly title: string;
  /** The process that runs; without one, `findStart` tells how one is started. */
  readonly source?: RunningSource;
  /** How it is started, also again after its end. */
  findStart?(): Promise<StartSource>;
  /** What a reload has kept of it. */
  readonly kept?: KeptTab & { readonly screen: string };
  readonly lease: SandboxLease | null;
  readonly fontSize: Observable<number>;
  onLink(url: string): void;
}
