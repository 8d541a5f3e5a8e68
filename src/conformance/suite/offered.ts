import type { Check } from './cases.ts';
import type { TestedDaemon } from './daemon.ts';
import { NotOffered } from './not-run.ts';

/**
 * A case of an extension. `ability` is its name in `GET /health?verbose`; null: it has none, and a daemon that names any ability
 * has it. A daemon without it does not fail: it is told that it is not offered.
 */
export const offered =
  (ability: string | null, check: Check): Check =>
  async (daemon) => {
    await requireOffered(daemon, ability);
    await check(daemon);
  };

async function requireOffered(daemon: TestedDaemon, ability: string | null): Promise<void> {
  const { status, body } = await daemon.rest('GET', '/health', { query: { verbose: '' } });
  const abilities = status === 200 ? abilitiesIn(String(body)) : null;
  if (abilities === null) throw new NotOffered('it names no abilities');
  if (ability === null) return;
  const { available = false, reason = null } = abilities[ability] ?? {};
  if (!available) throw new NotOffered(reason ?? `it does not name '${ability}'`);
}

type Abilities = Readonly<Record<string, { readonly available?: boolean; readonly reason?: string | null }>>;

/** The abilities in the answer of a daemon; null: it is not of this form. */
function abilitiesIn(text: string): Abilities | null {
  try {
    const { abilities } = JSON.parse(text);
    return typeof abilities === 'object' ? abilities : null;
  } catch {
    return null;
  }
}
