import { createClient } from '@redis/client';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Locate } from './redis-link.ts';

/** How long one Sentinel may take to answer, in ms. */
const LIMIT_MS = 1000;

/** What one Sentinel says of a master. */
interface Told {
  readonly address: readonly [host: string, port: string];
  /** It is alive, and no other one is being put in its place. */
  readonly isSettled: boolean;
}

/**
 * Asks Sentinels where the master is. More than half must tell, and all who do must agree: a master that is back while
 * another one is put in its place would take changes, which are lost.
 *
 * @param url its host is the name of the master; the rest is that of its URL
 * @param sentinels URLs
 */
export function askSentinels(url: string, sentinels: readonly string[]): Locate {
  const name = new URL(url).hostname;
  return async () => {
    const reasons: string[] = [];
    const answers = await Promise.all(
      sentinels.map((sentinel) =>
        within(LIMIT_MS, ask(sentinel, name), late).catch((error: unknown) => {
          reasons.push(`${new URL(sentinel).host}: ${messageOf(error)}`);
          return null;
        }),
      ),
    );
    const told = answers.filter((answer) => answer !== null);
    const [first] = told;
    if (!first || 2 * told.length <= sentinels.length) {
      const who = first ? `only ${told.length} of ${sentinels.length} Sentinels tell` : 'no Sentinel tells';
      throw new EnvdError('unavailable', `${who} where the registry is: ${reasons.join('; ')}`);
    }
    const isAgreed = told.every(
      ({ address, isSettled }) => isSettled && address.join() === first.address.join(),
    );
    if (!isAgreed)
      throw new EnvdError('unavailable', 'the Sentinels are not agreed on which server has the registry');
    return withHost(url, first.address);
  };
}

async function ask(sentinel: string, name: string): Promise<Told> {
  const client = createClient({
    url: sentinel,
    disableOfflineQueue: true,
    socket: { connectTimeout: LIMIT_MS, socketTimeout: LIMIT_MS, reconnectStrategy: false },
  });
  // Told by the promises, too.
  client.on('error', () => {});
  try {
    await client.connect();
    const reply: unknown = await client.sendCommand(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name]);
    if (!Array.isArray(reply)) throw new Error(`it knows no master '${name}'`);
    const fields: unknown = await client.sendCommand(['SENTINEL', 'MASTER', name]);
    const value = (field: string) => (Array.isArray(fields) ? fields[fields.indexOf(field) + 1] : undefined);
    const address = [String(reply[0]), String(reply[1])] as const;
    // While replicas are led to a new master, the first answer is the new one, the second one still the old one.
    const isNew = address.join() !== [value('ip'), value('port')].join();
    return { address, isSettled: isNew || value('flags') === 'master' };
  } finally {
    if (client.isOpen) client.destroy();
  }
}

function withHost(url: string, [host, port]: readonly [string, string]): string {
  const located = new URL(url);
  located.hostname = host.includes(':') ? `[${host}]` : host;
  located.port = port;
  return located.href;
}

function late(): never {
  throw new Error(`no answer within ${LIMIT_MS} ms`);
}
