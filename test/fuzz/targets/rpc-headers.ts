import assert from 'node:assert/strict';
import { announcedDigests, wantedDigest } from '../../../src/daemon/extensions/digests/digests.ts';
import { streamCodecOf } from '../../../src/daemon/http/protocol/connect-stream.ts';
import { keepaliveMsOf, timeoutOf } from '../../../src/daemon/http/protocol/request.ts';
import {
  acceptsIdentity,
  chooseCoding,
  dispositionOf,
  typeOf,
} from '../../../src/daemon/http/rest/files/content-headers.ts';
import { validateMetadata } from '../../../src/daemon/services/files/entries/metadata.ts';
import { unlessRefused } from '../refused.ts';

/** Values of headers. Each line is taken for every header that has a grammar. */
export function fuzz(data: Buffer): void {
  for (const value of data.toString('latin1').split('\n')) {
    const timeout = unlessRefused(() => timeoutOf({ 'connect-timeout-ms': value }));
    assert(timeout === null || (timeout > 0 && timeout <= 0x7fffffff));
    const keepalive = keepaliveMsOf({ 'keepalive-ping-interval': value });
    assert(keepalive > 0 && keepalive <= 0x7fffffff);
    streamCodecOf(value);
    unlessRefused(() => announcedDigests({ 'content-digest': value }));
    wantedDigest({ 'want-repr-digest': value, 'want-content-digest': value });
    acceptsIdentity(value);
    chooseCoding(value);
    checkDisposition(value);
    unlessRefused(() => validateMetadata({ values: { [value]: value }, prefix: 'user.svc.' }));
  }
}

/** Names of files are anything but NUL and a slash. */
function checkDisposition(name: string): void {
  if (/[\0/]/.test(name) || name === '') return;
  for (const header of [dispositionOf(name), typeOf(name)]) assert.match(header, /^[\t\x20-\x7e\x80-\xff]*$/);
}
