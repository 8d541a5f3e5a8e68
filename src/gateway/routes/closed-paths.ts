/** The daemon's operations that are closed to clients; only the platform calls them. */
const CLOSED = new Set(['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw', '/upgrade']);

/** A request target in origin form, `/path?query` (RFC 9112, section 3.2.1); null when it has no path. */
export function originForm(target: string): string | null {
  if (target.startsWith('/')) return target;
  const url = /^https?:\/\//i.test(target) ? URL.parse(target) : null;
  // The rest stays as it is, whereas URL.parse() would resolve dots and encode characters.
  return url ? target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/^(?!\/)/, '/') : null;
}

/**
 * The closed operation that a target would reach in a server that normalises paths in every known way: decoded any
 * number of times, empty segments and parameters dropped, backslashes read as slashes, dots resolved, in lower case.
 * Null when it reaches none.
 */
export function closedOperation(target: string): string | null {
  const path = normalise(target);
  return CLOSED.has(path) ? path : null;
}

function normalise(target: string): string {
  const path = decodeFully(target.split(/[?#]/, 1)[0] ?? '');
  const segments: string[] = [];
  for (const segment of path.split(/[?#]/, 1)[0]?.split(/[\\/]/) ?? []) {
    const [name = ''] = segment.split(';', 1);
    const plain = name.replaceAll(/[\0-\x20\x7f]/g, '').toLowerCase();
    if (plain === '..') segments.pop();
    else if (plain !== '' && plain !== '.') segments.push(plain);
  }
  return `/${segments.join('/')}`;
}

/**
 * Decodes until nothing is left to decode, in one pass: a decoded character that completes an escape is decoded at
 * once. Repeated passes over the whole text would take quadratic time for `%252525…`.
 */
function decodeFully(path: string): string {
  const decoded: string[] = [];
  for (const character of path) {
    decoded.push(character);
    while (decoded.at(-3) === '%' && /^[0-9a-f]{2}$/i.test(decoded.slice(-2).join(''))) {
      const [, high = '', low = ''] = decoded.splice(-3);
      decoded.push(String.fromCharCode(Number.parseInt(high + low, 16)));
    }
  }
  return decoded.join('');
}
