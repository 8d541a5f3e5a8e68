import { cors } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { EXPOSED_HEADERS } from '../../../src/daemon/heads.ts';

test('responses expose all headers that clients of connect read', () => {
  expect(EXPOSED_HEADERS.split(', ')).toEqual(expect.arrayContaining([...cors.exposedHeaders]));
});
