import { type Check, given, NotRun } from './cases.ts';
import type { Daemon } from './daemon.ts';

/**
 * A case of an extension. `ability` is its name in `GET /health?verbose`; null: it has none, and a daemon that names any ability
 * has it. A daemon without it does not fail: it is told that it is not offered.
 */
export const offered = (ability: string | null, check: Check) =>
  given('extensions')(async (daemon) => {
    await requireOffered(daemon, ability);
    await check(daemon);
  });

async function requireOffered(daemon: Daemon, ability: string | null): Promise<void> {
  const { status, body } = await daemon.rest('GET', '/health', { query: { verbose: '' } });
  const { abilities = null } = status === 200 ? JSON.parse(String(body)) : {};
  if (abilities === null) throw new NotRun('not offered');
  if (ability === null) return;
  const { available = false, reason = null } = abilities[ability] ?? {};
  if (!available) throw new NotRun(reason === null ? 'not offered' : `not offered: ${reason}`);
}
