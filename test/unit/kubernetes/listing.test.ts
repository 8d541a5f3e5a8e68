import type { V1Pod } from '@kubernetes/client-node';
import { expect, test } from 'vitest';
import { listLines } from '../../../src/kubernetes/machines/listing.ts';

test('a disk that is kept while the claims are listed is not taken for one that is gone', async () => {
  const labels = { 'envd/template': 'base', 'envd/sandbox': 'abc', 'envd/state': 'used' };
  const pod = {
    metadata: { name: 'sandbox-abc', labels },
    spec: { containers: [], volumes: [{ name: 'home', ephemeral: {} }] },
    status: { phase: 'Failed' },
  };
  let pods: readonly V1Pod[] = [pod];
  const cluster = {
    pods: { isCurrent: true, list: () => pods },
    async claimsOf() {
      // The answer was made before a pause has kept the claim, and comes after it has removed the Pod.
      pods = [];
      return [];
    },
  } as unknown as Parameters<typeof listLines>[0];
  expect(await listLines(cluster, new Map([['abc', 'Evicted']]), true)).toEqual([]);
});
