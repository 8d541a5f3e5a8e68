import { CONTEXT_NAME } from '../connection/contexts.ts';

/** A path on this machine or in a sandbox. */
export type FilePlace =
  | { readonly side: 'local'; readonly path: string }
  /** `context` is null for the daemon of the call. */
  | { readonly side: 'remote'; readonly context: string | null; readonly path: string };

/**
 * Parses a place. `:path` and `CONTEXT:path` are in a sandbox. Everything else is on this machine, also if a slash comes
 * before the first colon.
 */
export function readPlace(text: string): FilePlace {
  const at = text.indexOf(':');
  const before = text.slice(0, at);
  if (at < 0 || (at > 0 && !CONTEXT_NAME.test(before))) return { side: 'local', path: text };
  return { side: 'remote', context: at === 0 ? null : before, path: text.slice(at + 1) };
}

/** Parses a path of a command whose paths are all in a sandbox. It may begin with a colon. */
export function remotePath(text: string): string {
  return text.startsWith(':') ? text.slice(1) : text;
}

/** Returns the last name of a path, or '' for `/`, `.`, `..` and `~`. */
export function baseName(path: string): string {
  const name = /([^/]+)\/*$/.exec(path)?.[1] ?? '';
  return name === '.' || name === '..' || name === '~' ? '' : name;
}

/** Returns a path with more names behind it. */
export function joinPath(base: string, ...names: readonly string[]): string {
  if (names.length === 0) return base;
  const below = names.join('/');
  if (base === '') return below;
  return base.endsWith('/') ? base + below : `${base}/${below}`;
}
