import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Qmp } from '../../examples/platform/qmp.ts';
import { save } from '../../examples/platform/snapshots.ts';
import { scratch } from '../support/machine/scratch.ts';

test('a machine whose state cannot be written goes on, because its pause has failed', async () => {
  const home = scratch();
  // As on a full disk, nothing can be written there.
  mkdirSync(join(home, 'state.new'));
  const said: string[] = [];
  const qmp = {
    async execute(command: string, { uri = '' }: { readonly uri?: string } = {}) {
      said.push(command);
      if (command === 'migrate')
        connect(uri.slice('unix:'.length))
          .on('error', () => {})
          .end('state');
      return {};
    },
  } as unknown as Qmp;
  await expect(save(qmp, home, process.getuid?.() ?? 0)).rejects.toThrow();
  expect([said[0], said.at(-1)]).toEqual(['stop', 'cont']);
});
