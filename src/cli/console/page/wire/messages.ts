/* Messages of the protocol in JSON: members with their default value are missing, and 64-bit numbers are texts. */

export interface UsageMessage {
  readonly userMicros?: string;
  readonly systemMicros?: string;
  readonly memoryBytes?: string;
  readonly peakMemoryBytes?: string;
}

export interface ProcessMessage {
  readonly pid: number;
  readonly tag?: string;
  readonly config?: { readonly cmd?: string; readonly args?: readonly string[]; readonly cwd?: string };
  readonly usage?: UsageMessage;
  readonly parent?: number;
  readonly user?: string;
  readonly state?: string;
  readonly ageMillis?: string;
}

export interface ListMessage {
  readonly processes?: readonly ProcessMessage[];
  readonly truncated?: boolean;
}

export interface StartMessage {
  readonly process: {
    readonly cmd: string;
    readonly args: readonly string[];
    readonly envs?: Readonly<Record<string, string>>;
    readonly cwd?: string;
  };
  readonly pty?: { readonly size: CellSize };
  readonly tag?: string;
}

export interface CellSize {
  readonly cols: number;
  readonly rows: number;
}

export interface OffsetsMessage {
  readonly stdout?: string;
  readonly stderr?: string;
  readonly pty?: string;
}

export interface EndMessage {
  readonly exitCode?: number;
  readonly exited?: boolean;
  readonly status?: string;
  readonly reason?: string;
  readonly usage?: UsageMessage;
}

/** An event of `Start` and `Connect`. */
export interface ProcessEventMessage {
  readonly event?: {
    readonly start?: { readonly pid?: number; readonly offsets?: OffsetsMessage };
    readonly data?: Readonly<Partial<Record<OutputKindName, string>>>;
    readonly end?: EndMessage;
    readonly gap?: { readonly from?: OffsetsMessage; readonly to?: OffsetsMessage };
  };
}

export type OutputKindName = 'stdout' | 'stderr' | 'pty';

export interface EntryMessage {
  readonly name?: string;
  readonly type?: string;
  readonly path?: string;
  readonly size?: string;
  readonly permissions?: string;
  readonly owner?: string;
  readonly group?: string;
  readonly modifiedTime?: string;
  readonly symlinkTarget?: string;
}

export interface WatchMessage {
  readonly start?: object;
  readonly filesystem?: { readonly name?: string; readonly type?: string; readonly entry?: EntryMessage };
}

export interface HealthMessage {
  readonly version?: string;
  readonly interface?: string;
  readonly since?: string;
  readonly frozen?: { readonly workload?: boolean; readonly filesystem?: boolean };
  readonly abilities?: Readonly<Record<string, { readonly available?: boolean; readonly reason?: string }>>;
}

interface StallMessage {
  readonly avg10?: number;
}

export interface MetricsMessage {
  readonly cpu_count?: number;
  readonly cpu_used_pct?: number;
  readonly mem_total?: number;
  readonly mem_used?: number;
  readonly disk_used?: number;
  readonly disk_total?: number;
  readonly pressure?: Readonly<
    Partial<Record<'cpu' | 'memory' | 'io', { readonly some?: StallMessage | null } | null>>
  >;
}

/** A point of the last hour, with the Unix time in seconds of the guest. */
export interface PointMessage {
  readonly ts: number;
  readonly cpu_used_pct?: number | null;
  readonly mem_used?: number | null;
  readonly disk_used?: number | null;
  readonly cpu_pressure?: number | null;
  readonly memory_pressure?: number | null;
  readonly io_pressure?: number | null;
}

export interface HistoryMessage {
  readonly points?: readonly PointMessage[];
}

export interface PortsMessage {
  readonly address?: string | null;
  readonly ports?: readonly { readonly port: number; readonly target?: string }[];
}

/** What listens at a port of the guest. */
export interface ListenerMessage {
  readonly port: number;
  /** `127.0.0.1`, `::1`, or `*` for all addresses. */
  readonly address: string;
  readonly user?: string;
  /** null: not known. */
  readonly pid: number | null;
  readonly command: string | null;
}

/** A sandbox of a gateway. */
export interface SandboxMessage {
  readonly sandboxID: string;
  readonly state?: string;
  readonly phase?: string;
  readonly address?: string;
  readonly port?: number;
  readonly domain?: string | null;
  readonly startedAt?: string;
  readonly endAt?: string;
  readonly onExpiry?: string;
  readonly templateID?: string;
  /** Another name of the template. */
  readonly alias?: string;
  /** Of a private one, whose ports are reached by preview links alone. */
  readonly network?: { readonly allowPublicTraffic?: boolean };
  readonly cpuCount?: number;
  readonly memoryMB?: number;
  readonly metadata?: Readonly<Record<string, unknown>>;
}
