import { expect, test, vi } from 'vitest';
import { removeAt } from '../../../../../src/daemon/services/files/entries/remove.ts';
import { NEVER, testLanes } from '../../../../support/services/lanes.ts';

// If this test fails, the machine must survive it.
const { removeTree } = vi.hoisted(() => ({ removeTree: vi.fn() }));
vi.mock('../../../../../src/daemon/linux/system/native.ts', () => ({ native: { removeTree } }));

test('the root directory is refused', async () => {
  await expect(removeAt('/', testLanes, NEVER)).rejects.toMatchObject({
    kind: 'invalid_argument',
    message: "cannot remove the root directory: '/'",
  });
  expect(removeTree).not.toHaveBeenCalled();
});
