import assert from 'node:assert/strict';
import { requireSimpleJson, SIMPLE_BYTES } from '../../../src/daemon/http/bodies/json-body.ts';
import { COMPOSE_REQUEST } from '../../../src/daemon/http/rest/files/queries.ts';
import { INIT_REQUEST } from '../../../src/daemon/services/init/init-request.ts';
import { unlessRefused } from '../refused.ts';

/** Bodies of /init and compose, after white space that makes them long enough for the check of what takes long to parse. */
export function fuzz(data: Buffer): void {
  const text = Buffer.concat([Buffer.alloc(SIMPLE_BYTES + 1, ' '), data]);
  const isPassed = unlessRefused(() => {
    requireSimpleJson(text);
    return true;
  });
  const value = parsed(text);
  if (value === undefined) return;
  // At least: of members that repeat, the last one is left.
  if (isPassed) assert(containersOf(value) <= 16 * 1024);

  const request = unlessRefused(() => INIT_REQUEST.read(value, ''));
  for (const name of Object.keys(request?.environment ?? {})) assert(name !== '' && !/[=\0]/.test(name));
  const composed = unlessRefused(() => COMPOSE_REQUEST.read(value, ''));
  if (composed) assert(composed.source_paths.length > 0 && composed.destination !== '');
}

function parsed(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString('utf8'));
  } catch {
    return undefined;
  }
}

/** Objects and arrays that are left after parsing. */
function containersOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, one) => sum + containersOf(one), 1);
}
