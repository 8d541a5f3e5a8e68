import { readFileSync, type Stats, statSync } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import { missingCapabilities, TO_ACT_AS_OTHERS } from './capabilities.ts';

export interface User {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** The group ids, the primary group first, as `id -G` lists them. */
  readonly groups: readonly number[];
  readonly home: string;
  readonly shell: string;
}

/** Returns the ids of this process if it can act as no other user; null when it can, as root with the capabilities for it. */
export function onlyUser(): Pick<User, 'uid' | 'gid' | 'groups'> | null {
  const [uid, gid] = [process.geteuid?.() ?? 0, process.getegid?.() ?? 0];
  const missing = missingCapabilities();
  if (uid === 0 && !TO_ACT_AS_OTHERS.some((name) => missing.includes(name))) return null;
  return { uid, gid, groups: [...new Set([gid, ...(process.getgroups?.() ?? [])])] };
}

/** A snapshot of user and group names. */
export interface AccountNames {
  /** Returns the user's name, or the uid as text if there is none. */
  userName(uid: number): string;
  /** Returns the group's name, or the gid as text if there is none. */
  groupName(gid: number): string;
}

/**
 * A file that was changed less than this ago is read again at the next look, in milliseconds, because another change might
 * not change its timestamp.
 */
const RACY_MS = 100;

/** A file that is parsed again only when it has changed. It is looked at once in a turn of the event loop. */
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

  /** Returns the current content. A file that is missing or not regular counts as empty, because a fifo would block. */
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

/** Returns whether two results of stat(2) are of the same file, and equal. Times are compared in steps of 250 ns. */
function isSame(a: Stats, b: Stats): boolean {
  const isFile = a.ino === b.ino && a.dev === b.dev && a.size === b.size;
  return isFile && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs;
}

type PasswdEntry = Omit<User, 'groups'>;

interface Passwd {
  readonly byName: ReadonlyMap<string, PasswdEntry>;
  readonly nameOf: ReadonlyMap<number, string>;
}

/** Matches a user by number, `1000`, or with the number of a group, `1000:1000`, as container images name them. */
const NUMBERS = /^(\d{1,10})(?::(\d{1,10}))?$/;

/** Root, where passwd(5) has no entry for it, or does not exist. */
const ROOT: PasswdEntry = { name: 'root', uid: 0, gid: 0, home: '/', shell: '/bin/sh' };

interface Groups {
  /** The ids of the groups that a user is a member of. */
  readonly ofMember: ReadonlyMap<string, readonly number[]>;
  readonly nameOf: ReadonlyMap<number, string>;
  readonly idOf: ReadonlyMap<string, number>;
}

/** Parses passwd(5): `name:password:uid:gid:gecos:home:shell`. The first entry of a name or uid counts. */
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

/** Parses group(5): `name:password:gid:member,member`. */
function parseGroups(text: string): Groups {
  const ofMember = new Map<string, number[]>();
  const nameOf = new Map<number, string>();
  const idOf = new Map<string, number>();
  for (const [name, , gidText, members = ''] of lines(text)) {
    const gid = parseId(gidText);
    if (!name || gid === null) continue;
    for (const member of members.split(',')) {
      const ids = ofMember.get(member);
      if (ids) ids.push(gid);
      else ofMember.set(member, [gid]);
    }
    if (!nameOf.has(gid)) nameOf.set(gid, name);
    if (!idOf.has(name)) idOf.set(name, gid);
  }
  return { ofMember, nameOf, idOf };
}

function lines(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.split(':'));
}

/** This number, (uid_t)-1, is no id: chown(2) and setresuid(2) take it as "do not change". */
const NO_ID = 0xffff_ffff;

function parseId(text: string | undefined): number | null {
  if (text === undefined || !/^\d{1,10}$/.test(text)) return null;
  return Number(text) < NO_ID ? Number(text) : null;
}

/** The users and groups as they were when both files were read. */
class Accounts implements AccountNames {
  readonly #passwd: Passwd;
  readonly #groups: Groups;
  readonly #users = new Map<string, User>();

  constructor(passwd: Passwd, groups: Groups) {
    this.#passwd = passwd;
    this.#groups = groups;
  }

  isOf(passwd: Passwd, groups: Groups): boolean {
    return passwd === this.#passwd && groups === this.#groups;
  }

  /** Returns the user of this name, or null when there is none. */
  user(name: string): User | null {
    const known = this.#users.get(name);
    if (known) return known;
    const entry = this.#passwd.byName.get(name) ?? (name === ROOT.name ? ROOT : undefined);
    if (!entry) return this.#numbered(name);
    const supplementary = this.#groups.ofMember.get(name) ?? [];
    const user = { ...entry, groups: [...new Set([entry.gid, ...supplementary])] };
    this.#users.set(name, user);
    return user;
  }

  /**
   * Returns the user with these numbers. If a group is given, the user has that one alone, and none of those in which he is.
   * A uid without a name has the home `/` and, if no group is given, the group of its own number.
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

  groupId(name: string): number | null {
    return this.#groups.idOf.get(name) ?? parseId(name);
  }
}

/**
 * Knows the guest's users and groups. The files are looked at in each turn of the event loop in which a call comes, because
 * users are added while the sandbox runs; files that have not changed are not read again.
 */
export class UserDatabase {
  readonly #passwd: ParsedFile<Passwd>;
  readonly #groups: ParsedFile<Groups>;
  #accounts: Accounts | null = null;

  constructor(passwd = '/etc/passwd', group = '/etc/group') {
    this.#passwd = new ParsedFile(passwd, parsePasswd);
    this.#groups = new ParsedFile(group, parseGroups);
  }

  /** Returns the user of this name, or with these numbers. Throws `unauthenticated` if there is none. */
  lookup(name: string): User {
    const user = this.#current().user(name);
    if (!user) throw new EnvdError('unauthenticated', `invalid username: '${name}'`);
    return user;
  }

  /** Returns the id of the group of this name, or of this number; null: there is none. */
  groupId(name: string): number | null {
    return this.#current().groupId(name);
  }

  /** Returns a snapshot of all names, for many look-ups in one call. */
  names(): AccountNames {
    return this.#current();
  }

  #current(): Accounts {
    const [passwd, groups] = [this.#passwd.current(), this.#groups.current()];
    if (!this.#accounts?.isOf(passwd, groups)) this.#accounts = new Accounts(passwd, groups);
    return this.#accounts;
  }
}
