import assert from 'node:assert/strict';
import { actionOf } from '../../../src/daemon/extensions/terminal/terminal-messages.ts';
import { unlessRefused } from '../refused.ts';

/** Text messages of a client to a terminal by WebSocket. */
export function fuzz(data: Buffer): void {
  const action = unlessRefused(() => actionOf(data.toString('utf8')));
  if (action === null || action instanceof Uint8Array) return;
  for (const cells of [action.cols, action.rows])
    assert.ok(Number.isInteger(cells) && cells > 0 && cells <= 0xffff);
}
