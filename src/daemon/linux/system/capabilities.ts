import { readFileSync } from 'node:fs';

/** The capabilities that the daemon uses, and their bits. Sources: capabilities(7), linux/capability.h. */
const BITS = {
  CAP_CHOWN: 0,
  CAP_DAC_OVERRIDE: 1,
  CAP_FOWNER: 3,
  CAP_KILL: 5,
  CAP_SETGID: 6,
  CAP_SETUID: 7,
  CAP_SYS_ADMIN: 21,
  CAP_SYS_TIME: 25,
} as const;

export type Capability = keyof typeof BITS;

const ALL = Object.keys(BITS) as readonly Capability[];

/** Only in the first user namespace do these have the effect that the daemon needs. Source: user_namespaces(7). */
const OF_THE_MACHINE: readonly Capability[] = ['CAP_SYS_ADMIN', 'CAP_SYS_TIME'];
/** The map of the first user namespace: each uid is itself. */
const FIRST_NAMESPACE = /^\s*0\s+0\s+4294967295\s*$/;

/**
 * Returns the capabilities that this process lacks, in the order of their bits. Those that have no effect in its user namespace
 * count as missing. `proc` is where proc(5) is mounted; without it, nothing is known to be missing.
 */
export function missingCapabilities(proc = '/proc'): readonly Capability[] {
  const text = contentOf(`${proc}/self/status`);
  const effective = BigInt(`0x${/^CapEff:\s*([\da-f]+)$/m.exec(text)?.[1] ?? 'ffffffffffffffff'}`);
  const isFirst = FIRST_NAMESPACE.test(contentOf(`${proc}/self/uid_map`) || '0 0 4294967295');
  const deniesGroups = contentOf(`${proc}/self/setgroups`).trim() === 'deny';
  return ALL.filter(
    (name) =>
      ((effective >> BigInt(BITS[name])) & 1n) === 0n ||
      (!isFirst && OF_THE_MACHINE.includes(name)) ||
      (deniesGroups && name === 'CAP_SETGID'),
  );
}

/** A process acts as other users only with all of these. */
export const TO_ACT_AS_OTHERS: readonly Capability[] = ['CAP_CHOWN', 'CAP_SETGID', 'CAP_SETUID'];

function contentOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
