import { CONTEXT_NAME } from '../connection/contexts.ts';

/** A path on this machine, or in a sandbox. */
export type FilePlace =
  | { readonly side: 'local'; readonly path: string }
  /** `context`: null for the daemon of the call. */
  | { readonly side: 'remote'; readonly context: string | null; readonly path: string };

/** `:path` and `CONTEXT:path` are in a sandbox; everything else is here, also what has a slash before the first colon. */
export function readPlace(text: string): FilePlace {
  const at = text.indexOf(':');
  const before = text.slice(0, at);
  if (at < 0 || (at > 0 && !CONTEXT_NAME.test(before))) return { side: 'local', path: text };
  return { side: 'remote', context: at === 0 ? null : before, path: text.slice(at + 1) };
}

/** A path in a sandbox, for commands whose paths are all there: a colon before it is allowed. */
export function remotePath(text: string): string {
  return text.startsWith(':') ? text.slice(1) : text;
}

/** The last name of a path; empty for `/` and the like. */
export function baseName(path: string): string {
  const name = /([^/]+)\/*$/.exec(path)?.[1] ?? '';
  return name === '.' || name === '..' || name === '~' ? '' : name;
}

/** A path below another. */
export function joinPath(base: string, ...names: readonly string[]): string {
  if (names.length === 0) return base;
  const below = names.join('/');
  if (base === '') return below;
  return base.endsWith('/') ? base + below : `${base}/${below}`;
}
