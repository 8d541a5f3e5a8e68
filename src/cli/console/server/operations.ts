/**
 * The calls of a daemon that the page may make. None of them hands out or changes a token, and none is one of the platform's
 * operations.
 */
const DAEMON: ReadonlyMap<string, readonly string[]> = new Map([
  ['/health', ['GET']],
  ['/metrics', ['GET']],
  ['/metrics/history', ['GET']],
  ['/ports', ['GET']],
  ['/files', ['GET', 'HEAD', 'POST']],
  ...rpcs('process.Process', [
    ...['List', 'Connect', 'Start', 'Update', 'SendInput', 'SendSignal', 'CloseStdin'],
  ]),
  ...rpcs('filesystem.Filesystem', ['Stat', 'MakeDir', 'Move', 'ListDir', 'Remove', 'WatchDir']),
]);

/** The operations of a gateway on one sandbox; a look-up, which answers with a token, is none of them. */
const SANDBOX = /^\/sandboxes\/[\w.~%-]{1,300}(\/(?:timeout|refreshes|pause|resume))?$/;

function rpcs(service: string, methods: readonly string[]): [path: string, methods: string[]][] {
  return methods.map((method) => [`/${service}/${method}`, ['POST']]);
}

/** Whether the page may make this call of a daemon; `path`: without a query. */
export function isDaemonCall(method: string, path: string): boolean {
  return DAEMON.get(path)?.includes(method) ?? false;
}

/** Whether the page may make this call of a gateway. */
export function isGatewayCall(method: string, path: string): boolean {
  if (path === '/sandboxes') return method === 'GET';
  const [isOne, operation] = SANDBOX.exec(path) ?? [];
  if (isOne === undefined) return false;
  return method === (operation === undefined ? 'DELETE' : 'POST');
}
