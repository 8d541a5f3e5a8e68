import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DAEMON_PROGRAM, startDaemon } from '../support/daemon.ts';
import { scratch } from '../support/scratch.ts';
import { until } from '../support/until.ts';

/*
 * A collection drops hidden classes of which there is no object, and what V8 knew of them: the next call that makes such an object misses
 * its inline caches. The rehearsal makes them again after the last collection (docs/decisions/044-rehearsal.md).
 */

/** As fetch sends it: objects with the same headers in another order have another hidden class. */
const HEADERS = [
  ...['host', 'localhost', 'connection', 'keep-alive', 'accept', '*/*', 'accept-language', '*'],
  ...['sec-fetch-mode', 'cors', 'user-agent', 'node', 'accept-encoding', 'gzip, deflate'],
];
/** The platform's body; without a time, as a test must not set the machine's clock. */
const BODY = JSON.stringify({ accessToken: 'secret', defaultUser: 'root', volumeMounts: null });
const BODY_HEADERS = HEADERS.toSpliced(4, 0, 'content-type', 'application/json').concat(
  'content-length',
  `${BODY.length}`,
);
/** Calls before the pause, so that V8 knows the daemon's own objects as well as those of the rehearsal. */
const CALLS = 100;
/**
 * It is 2 of the first answer, 107 without the second rehearsal; and 0 of `/init`, 43 without that, and 3 when only other members are
 * rehearsed than the platform sends.
 */
const MOST = 2;

test('the first calls after a collapse miss hardly any inline cache, and make no hidden class', async () => {
  const logfile = join(scratch(), 'v8.log');
  const flags = ['--log-ic', '--log-maps', `--logfile=${logfile}`, '--no-logfile-per-isolate'];
  await using daemon = await startDaemon({ command: [process.execPath, ...flags, DAEMON_PROGRAM] });
  const misses = () =>
    readFileSync(logfile, 'latin1').match(/^((Load|Store|KeyedLoad|KeyedStore)IC|map,Transition),/gm)
      ?.length ?? 0;
  const call = async (method: string, path: string, headers: readonly string[], body = '') => {
    const sent = request(`${daemon.url}${path}`, { method, headers, agent: false }).end(body);
    const [answer]: IncomingMessage[] = await once(sent, 'response');
    expect(answer?.resume().statusCode).toBe(204);
  };
  const missesOf = async (...args: Parameters<typeof call>) => {
    let before = misses();
    await until('the daemon is idle', () => {
      const earlier = before;
      before = misses();
      return before === earlier;
    });
    await call(...args);
    return misses() - before;
  };
  const init = ['POST', '/init', BODY_HEADERS, BODY] as const;
  for (let calls = 0; calls < CALLS; calls++) await call(...init);
  const collapse = { method: 'POST', headers: { 'x-access-token': 'secret' } };
  expect((await fetch(`${daemon.url}/collapse`, collapse)).status).toBe(200);
  expect(await missesOf('GET', '/health', HEADERS)).toBeLessThanOrEqual(MOST);
  expect(await missesOf(...init)).toBeLessThanOrEqual(MOST);
});
