import assert from 'node:assert/strict';
import { JsonScanner } from '../../../src/daemon/http/json/json-scanner.ts';
import { COMPOSE_REQUEST } from '../../../src/daemon/http/json/queries.ts';
import { INIT_REQUEST } from '../../../src/daemon/services/init/init-request.ts';
import { cut, unlessRefused } from '../refused.ts';

/** Bodies of /init and compose. First byte: the number of cuts that follow, then the text. */
export function fuzz(data: Buffer): void {
  const cuts = data.subarray(1, 1 + (data[0] ?? 0));
  const text = data.subarray(1 + cuts.length);
  const value = parsed(text);
  const limits = { bytes: 200, containers: 4, large: { name: 'caBundle', bytes: 300 } };
  const isPassed = scan(limits, [text]);
  assert.equal(scan(limits, [...cut(text, cuts)]), isPassed);
  if (value === undefined) return;
  // At least: of members that repeat, the last one is left.
  assert(!scan({ bytes: text.length, containers: containersOf(value) - 1, large: null }, [text]));

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

function scan(limits: ConstructorParameters<typeof JsonScanner>[0], pieces: readonly Buffer[]): boolean {
  const scanner = new JsonScanner(limits);
  const isPassed = () => {
    for (const piece of pieces) scanner.add(piece);
    return true;
  };
  return unlessRefused(isPassed) !== null;
}

/** Objects and arrays that are left after parsing. */
function containersOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, one) => sum + containersOf(one), 1);
}
