import { type Ask, agreedServer, type WitnessAnswer } from './agreement.ts';
import type { Locate } from './redis-link.ts';

/**
 * Returns a function that asks Sentinels where the master is.
 *
 * @param url its host is the name of the master, and the rest belongs to the URL of the master
 * @param sentinels the URLs of the Sentinels
 */
export function askSentinels(url: string, sentinels: readonly string[]): Locate {
  const name = new URL(url).hostname;
  return agreedServer(url, { word: 'Sentinel', urls: sentinels, tell: (ask) => tellMaster(ask, name) });
}

async function tellMaster(ask: Ask, name: string): Promise<WitnessAnswer> {
  const reply = await ask('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name);
  if (!Array.isArray(reply)) throw new Error(`it knows no master '${name}', which the host of --redis names`);
  const fields = await ask('SENTINEL', 'MASTER', name);
  const value = (field: string) => (Array.isArray(fields) ? fields[fields.indexOf(field) + 1] : undefined);
  const address = [String(reply[0]), String(reply[1])] as const;
  // While the replicas switch to a new master, the first answer names the new one and the second answer still the old one.
  const isNew = address.join() !== [value('ip'), value('port')].join();
  return { address, isSettled: isNew || value('flags') === 'master' };
}
