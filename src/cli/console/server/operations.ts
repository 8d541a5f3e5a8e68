/**
 * The calls of a daemon that the page may make. None of them hands out or changes a token, and none is one of the platform's
 * operations.
 */
const DAEMON: ReadonlyMap<string, readonly string[]> = new Map([
  ['/health', ['GET']],
  ['/metrics', ['GET']],
  ['/metrics/history', ['GET']],
  ['/ports', ['GET']],
  ['/ports/stream', ['GET']],
  ['/files', ['GET', 'HEAD', 'POST']],
  ...rpcs('process.Process', [
    ...['List', 'Connect', 'Start', 'Update', 'SendInput', 'SendSignal', 'CloseStdin'],
  ]),
  ...rpcs('filesystem.Filesystem', ['Stat', 'MakeDir', 'Move', 'ListDir', 'Remove', 'WatchDir']),
]);

/** A call of a gateway that the page may make. */
interface GatewayCall {
  readonly method: string;
  readonly path: RegExp;
  /** The members of its answer that the page gets, because others may be tokens; null: all of it. */
  readonly tells: readonly string[] | null;
}

/** A look-up of a sandbox, which answers with a token, is none of them, nor is a registration. */
const GATEWAY: readonly GatewayCall[] = [
  { method: 'GET', path: /^\/(sandboxes|templates)$/, tells: null },
  { method: 'POST', path: /^\/v2\/sandboxes$/, tells: ['sandboxID'] },
  { method: 'POST', path: /^\/sandboxes\/[\w.~%-]{1,300}\/previews$/, tells: ['url'] },
  {
    ...{ method: 'POST', tells: [] },
    path: /^\/sandboxes\/[\w.~%-]{1,300}\/(timeout|refreshes|pause|resume)$/,
  },
  { method: 'DELETE', path: /^\/sandboxes\/[\w.~%-]{1,300}$/, tells: [] },
];

function rpcs(service: string, methods: readonly string[]): [path: string, methods: string[]][] {
  return methods.map((method) => [`/${service}/${method}`, ['POST']]);
}

/** Whether the page may make this call of a daemon; `path`: without a query. */
export function isDaemonCall(method: string, path: string): boolean {
  return DAEMON.get(path)?.includes(method) ?? false;
}

/** The call of a gateway that this is; null: the page may not make it. */
export function gatewayCallOf(method: string, path: string): GatewayCall | null {
  return GATEWAY.find((call) => call.method === method && call.path.test(path)) ?? null;
}
