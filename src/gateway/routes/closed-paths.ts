import { PLATFORM_ONLY } from '../../base/http/operations.ts';

/** Returns a request target in origin form, `/path?query` (RFC 9112, section 3.2.1), or null if it has no path. */
export function originForm(target: string): string | null {
  if (target.startsWith('/')) return target;
  const url = /^https?:\/\//i.test(target) ? URL.parse(target) : null;
  // The text is cut, because URL.parse() would resolve dots and encode characters.
  return url ? target.replace(/^https?:\/\/[^/?#]*/i, '').replace(/^(?!\/)/, '/') : null;
}

/**
 * Returns the closed operation that a target would reach in a server that normalizes paths in every known way, or null. Such
 * a server decodes any number of times, drops empty segments and parameters, reads backslashes as slashes, resolves dots, and
 * ignores case.
 */
export function closedOperation(target: string): string | null {
  const path = normalise(target);
  return PLATFORM_ONLY.has(path) ? path : null;
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
 * Decodes until no escape is left, in one pass. A decoded character that completes an escape is decoded at once, because
 * repeated passes would take quadratic time for `%252525…`.
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
