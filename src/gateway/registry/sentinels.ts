import { type Ask, agreedServer, type WitnessAnswer } from './agreement.ts';
import type { Locate } from './redis-link.ts';

/**
 * Asks Sentinels where the master is.
 *
 * @param url its host is the name of the master; the rest is that of its URL
 * @param sentinels URLs
 */
export function askSentinels(url: string, sentinels: readonly string[]): Locate {
  const name = new URL(url).hostname;
  return agreedServer(url, { word: 'Sentinel', urls: sentinels, tell: (ask) => tellMaster(ask, name) });
}

async function tellMaster(ask: Ask, name: string): Promise<WitnessAnswer> {
  const reply = await ask('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name);
  if (!Array.isArray(reply)) throw new Error(`it knows no master '${name}'`);
  const fields = await ask('SENTINEL', 'MASTER', name);
  const value = (field: string) => (Array.isArray(fields) ? fields[fields.indexOf(field) + 1] : undefined);
  const address = [String(reply[0]), String(reply[1])] as const;
  // While replicas are led to a new master, the first answer is the new one, the second one still the old one.
  const isNew = address.join() !== [value('ip'), value('port')].join();
  return { address, isSettled: isNew || value('flags') === 'master' };
}
