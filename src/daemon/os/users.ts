import { readFileSync, statSync } from 'node:fs';
import { EnvdError } from '../../base/errors.ts';

/** A user of the guest, as a login would see it. */
export interface User {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** The primary group and all supplementary ones, as `id -G` lists them. */
  readonly groups: readonly number[];
  readonly home: string;
  readonly shell: string;
}

/** The names of owners at one moment. */
export interface Names {
  /** The user's name, or the number as text when there is none. */
  userName(uid: number): string;
  /** The group's name, or the number as text when there is none. */
  groupName(gid: number): string;
}

/** A file changed more recently than this may change again without its times showing it. */
const RACY_MS = 100;

/** A file that is read again only when it has changed: `current()` costs one stat. */
class ParsedFile<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
  #identity = '';
  #value: T;

  constructor(path: string, parse: (text: string) => T) {
    this.#path = path;
    this.#parse = parse;
    this.#value = parse('');
  }

  /** The file's content now; that of an empty one when there is none, or a fifo in its place that would never end. */
  current(): T {
    const status = statSync(this.#path, { bigint: true, throwIfNoEntry: false });
    if (!status?.isFile()) return this.#parse('');
    const identity = `${status.dev}:${status.ino}:${status.size}:${status.mtimeNs}:${status.ctimeNs}`;
    if (identity === this.#identity) return this.#value;
    this.#value = this.#parse(readFileSync(this.#path, 'utf8'));
    this.#identity = Date.now() - Number(status.ctimeMs) > RACY_MS ? identity : '';
    return this.#value;
  }
}

type PasswdEntry = Omit<User, 'groups'>;

interface Passwd {
  readonly byName: ReadonlyMap<string, PasswdEntry>;
  readonly nameOf: ReadonlyMap<number, string>;
}

interface Groups {
  readonly all: readonly { readonly gid: number; readonly members: ReadonlySet<string> }[];
  readonly nameOf: ReadonlyMap<number, string>;
}

/** passwd(5): `name:password:uid:gid:gecos:home:shell`; the first entry of a name or number counts. */
function parsePasswd(text: string): Passwd {
  const byName = new Map<string, PasswdEntry>();
  const nameOf = new Map<number, string>();
  for (const [name, , uidText, gidText, , home, shell] of lines(text)) {
    const [uid, gid] = [parseId(uidText), parseId(gidText)];
    if (!name || uid === null || gid === null || byName.has(name)) continue;
    byName.set(name, { name, uid, gid, home: home || '/', shell: shell || '/bin/sh' });
    if (!nameOf.has(uid)) nameOf.set(uid, name);
  }
  return { byName, nameOf };
}

/** group(5): `name:password:gid:member,member`. */
function parseGroups(text: string): Groups {
  const all: Groups['all'][number][] = [];
  const nameOf = new Map<number, string>();
  for (const [name, , gidText, members = ''] of lines(text)) {
    const gid = parseId(gidText);
    if (!name || gid === null) continue;
    all.push({ gid, members: new Set(members.split(',')) });
    if (!nameOf.has(gid)) nameOf.set(gid, name);
  }
  return { all, nameOf };
}

function lines(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.split(':'));
}

/** The highest number means "leave as it is" to chown(2) and setresuid(2), and is nobody's. */
const NO_ID = 0xffff_ffff;

function parseId(text: string | undefined): number | null {
  if (text === undefined || !/^\d{1,10}$/.test(text)) return null;
  return Number(text) < NO_ID ? Number(text) : null;
}

/**
 * The guest's users and groups, read from its files at the time of each call: users appear while the sandbox
 * runs. Unchanged files are not read again.
 */
export class UserDatabase {
  readonly #passwd: ParsedFile<Passwd>;
  readonly #groups: ParsedFile<Groups>;

  constructor(passwd = '/etc/passwd', group = '/etc/group') {
    this.#passwd = new ParsedFile(passwd, parsePasswd);
    this.#groups = new ParsedFile(group, parseGroups);
  }

  /** Throws `unauthenticated` when there is no such user. */
  lookup(name: string): User {
    const entry = this.#passwd.current().byName.get(name);
    if (!entry) throw new EnvdError('unauthenticated', `invalid username: '${name}'`);
    const supplementary = this.#groups
      .current()
      .all.filter(({ members }) => members.has(name))
      .map(({ gid }) => gid);
    return { ...entry, groups: [...new Set([entry.gid, ...supplementary])] };
  }

  /** The names as they are now, for the many look-ups of one call. */
  names(): Names {
    const users = this.#passwd.current().nameOf;
    const groups = this.#groups.current().nameOf;
    return {
      userName: (uid) => users.get(uid) ?? String(uid),
      groupName: (gid) => groups.get(gid) ?? String(gid),
    };
  }
}
