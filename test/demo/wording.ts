/** What can be written as JSON. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };

/** Fields of type `bytes`: base64 in JSON, shown as text. */
const BYTES = new Set(['stdin', 'stdout', 'stderr', 'pty']);

/** A message as JSON, with its bytes as text. */
export function json(message: Json): string {
  return JSON.stringify(message, readableBytes);
}

/**
 * A message on one line: wrappers that hold one member become a path (`event.data.stdout "hi\n"`), directory entries
 * become rows as `ls -l` prints them.
 */
export function brief(message: Json): string {
  const path: string[] = [];
  let rest = message;
  for (let only = onlyMember(rest); only; only = onlyMember(rest)) {
    path.push(only[0]);
    rest = only[1];
  }
  if (Array.isArray(rest) && rest.length > 0 && rest.every(isEntry)) {
    return `${path.join('.')}\n${rest.map(entryRow).join('\n')}`;
  }
  return `${path.join('.')} ${JSON.stringify(readableBytes(path.at(-1) ?? '', rest), readableBytes)}`.trimStart();
}

function readableBytes(name: string, value: unknown): unknown {
  return BYTES.has(name) && typeof value === 'string' ? Buffer.from(value, 'base64').toString() : value;
}

function onlyMember(message: Json): readonly [string, Json] | undefined {
  if (message === null || typeof message !== 'object' || Array.isArray(message)) return undefined;
  const members = Object.entries(message);
  return members.length === 1 ? members[0] : undefined;
}

type Entry = Readonly<Record<'permissions' | 'owner' | 'group' | 'path', string>> & {
  readonly size?: string;
};

function isEntry(message: unknown): message is Entry {
  return typeof message === 'object' && message !== null && 'permissions' in message;
}

function entryRow({ permissions, owner, group, size = '0', path }: Entry): string {
  return `${permissions} ${owner} ${group} ${size.padStart(5)} ${path}`;
}
