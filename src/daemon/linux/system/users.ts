import { readFileSync, type Stats, statSync } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';

/** A user of the guest. */
export interface User {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** Group ids, primary group first, as `id -G` lists them. */
  readonly groups: readonly number[];
  readonly home: string;
  readonly shell: string;
}

/** The ids of this process, which can act as no other user; null: it is root. */
export function onlyUser(): Pick<User, 'uid' | 'gid' | 'groups'> | null {
  const [uid, gid] = [process.geteuid?.() ?? 0, process.getegid?.() ?? 0];
  return uid === 0 ? null : { uid, gid, groups: [...new Set([gid, ...(process.getgroups?.() ?? [])])] };
}

/** A snapshot of user and group names. */
export interface AccountNames {
  /** The user's name, or the uid as text if there is none. */
  userName(uid: number): string;
  /** The group's name, or the gid as text if there is none. */
  groupName(gid: number): string;
}

/** A file changed within this time may change again without a new timestamp; it is read again. In milliseconds. */
const RACY_MS = 100;

/** A file that is parsed again only when it has changed: `current()` costs one stat(2) in a turn of the event loop. */
class ParsedFile<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
  #identity: Stats | null = null;
  #value: T;
  /** Whether the file was looked at in this turn of the event loop. */
  #isFresh = false;

  constructor(path: string, parse: (text: string) => T) {
    this.#path = path;
    this.#parse = parse;
    this.#value = parse('');
  }

  /** The current content; as of an empty file if it is missing or not a regular file (a fifo would block). */
  current(): T {
    if (this.#isFresh) return this.#value;
    const status = statSync(this.#path, { throwIfNoEntry: false });
    if (!status?.isFile()) return this.#parse('');
    if (this.#identity === null || !isSame(status, this.#identity)) {
      this.#value = this.#parse(readFileSync(this.#path, 'utf8'));
      this.#identity = Date.now() - status.ctimeMs > RACY_MS ? status : null;
    }
    this.#isFresh = this.#identity !== null;
    if (this.#isFresh) setImmediate(this.#expire);
    return this.#value;
  }

  readonly #expire = () => {
    this.#isFresh = false;
  };
}

/** Times in steps of 250 ns, as far as a double has them. */
function isSame(a: Stats, b: Stats): boolean {
  const isFile = a.ino === b.ino && a.dev === b.dev && a.size === b.size;
  return isFile && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs;
}

type PasswdEntry = Omit<User, 'groups'>;

interface Passwd {
  readonly byName: ReadonlyMap<string, PasswdEntry>;
  readonly nameOf: ReadonlyMap<number, string>;
}

/** A user by number, `1000`, or with the number of a group, `1000:1000`, as container images name it. */
const NUMBERS = /^(\d{1,10})(?::(\d{1,10}))?$/;

interface Groups {
  /** The ids of the groups that a user is a member of. */
  readonly ofMember: ReadonlyMap<string, readonly number[]>;
  readonly nameOf: ReadonlyMap<number, string>;
}

/** passwd(5): `name:password:uid:gid:gecos:home:shell`; the first entry of a name or uid wins. */
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
  const ofMember = new Map<string, number[]>();
  const nameOf = new Map<number, string>();
  for (const [name, , gidText, members = ''] of lines(text)) {
    const gid = parseId(gidText);
    if (!name || gid === null) continue;
    for (const member of members.split(',')) {
      const ids = ofMember.get(member);
      if (ids) ids.push(gid);
      else ofMember.set(member, [gid]);
    }
    if (!nameOf.has(gid)) nameOf.set(gid, name);
  }
  return { ofMember, nameOf };
}

function lines(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.split(':'));
}

/** (uid_t)-1: not a valid id; chown(2) and setresuid(2) take it as "do not change". */
const NO_ID = 0xffff_ffff;

function parseId(text: string | undefined): number | null {
  if (text === undefined || !/^\d{1,10}$/.test(text)) return null;
  return Number(text) < NO_ID ? Number(text) : null;
}

/** Users and groups as they were when both files were read. */
class Accounts implements AccountNames {
  readonly #passwd: Passwd;
  readonly #groups: Groups;
  /** Those that were asked for. */
  readonly #users = new Map<string, User>();

  constructor(passwd: Passwd, groups: Groups) {
    this.#passwd = passwd;
    this.#groups = groups;
  }

  isOf(passwd: Passwd, groups: Groups): boolean {
    return passwd === this.#passwd && groups === this.#groups;
  }

  /** Null: there is none of that name. */
  user(name: string): User | null {
    const known = this.#users.get(name);
    if (known) return known;
    const entry = this.#passwd.byName.get(name);
    if (!entry) return this.#numbered(name);
    const supplementary = this.#groups.ofMember.get(name) ?? [];
    const user = { ...entry, groups: [...new Set([entry.gid, ...supplementary])] };
    this.#users.set(name, user);
    return user;
  }

  /**
   * With a group: only that one, none of those in which the user is. A uid without a name has the home `/`, and, if none is
   * given, the group of its own number.
   */
  #numbered(text: string): User | null {
    const [, uidText, gidText] = NUMBERS.exec(text) ?? [];
    const [uid, gid] = [parseId(uidText), parseId(gidText)];
    if (uid === null || (gid === null && gidText !== undefined)) return null;
    const named = this.#passwd.nameOf.get(uid);
    const known = named === undefined ? null : this.user(named);
    if (known && gid === null) return known;
    const own = gid ?? uid;
    const unnamed = { name: String(uid), uid, home: '/', shell: '/bin/sh' };
    return { ...(known ?? unnamed), gid: own, groups: [own] };
  }

  userName(uid: number): string {
    return this.#passwd.nameOf.get(uid) ?? String(uid);
  }

  groupName(gid: number): string {
    return this.#groups.nameOf.get(gid) ?? String(gid);
  }
}

/**
 * The guest's users and groups, as the files are in the turn of the event loop in which a call comes: users are added
 * while the sandbox runs. Unchanged files are not read again.
 */
export class UserDatabase {
  readonly #passwd: ParsedFile<Passwd>;
  readonly #groups: ParsedFile<Groups>;
  #accounts: Accounts | null = null;

  constructor(passwd = '/etc/passwd', group = '/etc/group') {
    this.#passwd = new ParsedFile(passwd, parsePasswd);
    this.#groups = new ParsedFile(group, parseGroups);
  }

  /** The user of this name, or of these numbers. Throws `unauthenticated` if there is none. */
  lookup(name: string): User {
    const user = this.#current().user(name);
    if (!user) throw new EnvdError('unauthenticated', `invalid username: '${name}'`);
    return user;
  }

  /** A snapshot of all names, for many look-ups in one call. */
  names(): AccountNames {
    return this.#current();
  }

  #current(): Accounts {
    const [passwd, groups] = [this.#passwd.current(), this.#groups.current()];
    if (!this.#accounts?.isOf(passwd, groups)) this.#accounts = new Accounts(passwd, groups);
    return this.#accounts;
  }
}
