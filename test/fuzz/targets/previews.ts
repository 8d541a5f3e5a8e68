import assert from 'node:assert/strict';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { Previews } from '../../../src/gateway/access/previews.ts';

const NOW = 1_700_000_000_000;
const TOKEN = 'the token of the sandbox';
const previews = new Previews('Svc');
/** A link of the gateway's own, and the pass in it. */
const LINK = previews.link(TOKEN, 3000, '/', NOW / 1000 + 60);
const PASS = LINK.slice(LINK.indexOf('=') + 1);

/** Requests to a private sandbox. Lines: the Cookie header and the target, in which `PASS` stands for a pass that is valid. */
export function fuzz(data: Buffer): void {
  const [cookie = '', target = ''] = data
    .toString('latin1')
    .split('\n')
    .map((line) => line.replaceAll('PASS', PASS));
  const request = new IncomingMessage(new Socket());
  request.headers = { cookie };
  const shown = previews.read(request, target, { canRedirect: true, isSecure: false });
  const admitted = previews.admit(TOKEN, 3000, target, shown, NOW);
  if (admitted) assert.ok(`${cookie}${target}`.includes(`svc-preview=${PASS}`) || cookie.includes(PASS));
  assert.equal(previews.admit(TOKEN, 3001, target, shown, NOW), null);
  assert.equal(previews.admit('another token', 3000, target, shown, NOW), null);
  if (admitted?.redirect && target.startsWith('/')) {
    assert.match(admitted.redirect.location, /^\/(?![/\\])/);
    assert.doesNotMatch(admitted.redirect.cookie, /[\r\n]/);
  }
  // A pass within a value is none, neither before nor after.
  const { link } = previews.read(request, previews.strip(request, target), {
    canRedirect: true,
    isSecure: false,
  });
  assert.equal(link, null);
  const left = (request.headers.cookie ?? '').split(';').map((pair) => pair.split('=', 1)[0]?.trim());
  assert.ok(!left.includes('svc-preview'));
}
