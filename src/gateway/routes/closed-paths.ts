/** The daemon's operations that are the platform's alone. */
const CLOSED = new Set(['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw']);

/** A request target in its usual form, `/path?query`, whatever form it came in; null when it names no path. */
export function originForm(target: string): string | null {
  if (target.startsWith('/')) return target;
  const url = /^https?:\/\//i.test(target) ? URL.parse(target) : null;
  // As it was written: parsing it would resolve and encode what the sandbox is to see.
  return url ? target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/^(?!\/)/, '/') : null;
}

/**
 * The operation that a target would reach in a daemon which read paths in the most generous way: decoded any number of
 * times, slashes doubled or turned round, dots resolved, in any case. Null unless it is closed.
 */
export function closedOperation(target: string): string | null {
  const path = generousPath(target);
  return CLOSED.has(path) ? path : null;
}

function generousPath(target: string): string {
  let path = target.split(/[?#]/, 1)[0] ?? '';
  for (let decoded = decodeOnce(path); decoded !== path; decoded = decodeOnce(path)) path = decoded;
  const segments: string[] = [];
  for (const segment of path.split(/[?#]/, 1)[0]?.split(/[\\/]/) ?? []) {
    const [name = ''] = segment.split(';', 1);
    const plain = name.replaceAll(/[\0-\x20\x7f]/g, '').toLowerCase();
    if (plain === '..') segments.pop();
    else if (plain !== '' && plain !== '.') segments.push(plain);
  }
  return `/${segments.join('/')}`;
}

function decodeOnce(path: string): string {
  return path.replaceAll(/%([0-9a-f]{2})/gi, (_all, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
}
