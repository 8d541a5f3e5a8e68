import { createClient } from '@redis/client';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Locate } from './redis-link.ts';

/** How long one Sentinel may take to answer, in ms. */
const LIMIT_MS = 1000;

/**
 * Asks Sentinels, in turn, where the master is.
 *
 * @param url its host is the name of the master; the rest is that of its URL
 * @param sentinels URLs
 */
export function askSentinels(url: string, sentinels: readonly string[]): Locate {
  return async () => {
    const reasons: string[] = [];
    for (const sentinel of sentinels) {
      try {
        return withHost(url, await within(LIMIT_MS, ask(sentinel, new URL(url).hostname), late));
      } catch (error) {
        reasons.push(`${new URL(sentinel).host}: ${messageOf(error)}`);
      }
    }
    throw new EnvdError('unavailable', `no Sentinel tells where the registry is: ${reasons.join('; ')}`);
  };
}

async function ask(sentinel: string, name: string): Promise<readonly [host: string, port: string]> {
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
    return [String(reply[0]), String(reply[1])];
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
