import { cors } from '@connectrpc/connect';
import { expect, test } from 'vitest';
import { EXPOSED_HEADERS } from '../../../../src/daemon/rest/admission.ts';

test('responses expose all headers that clients of connect read', () => {
  expect(EXPOSED_HEADERS).toEqual(expect.arrayContaining([...cors.exposedHeaders]));
});
