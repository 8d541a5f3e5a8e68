import { expect, test, vi } from 'vitest';
import { abilities } from '../../../../../src/daemon/services/guest/abilities.ts';

/** Files of the kernel that seem to be missing. */
const missing = vi.hoisted(() => new Set<string>());
vi.mock('node:fs', async (original) => {
  const fs = await original<typeof import('node:fs')>();
  return {
    ...fs,
    existsSync: (path: string) => !missing.has(path) && fs.existsSync(path),
    readFileSync: (path: string, encoding: 'utf8') =>
      path.startsWith('/sys/kernel/mm/') ? 'always [madvise] never\n' : fs.readFileSync(path, encoding),
  };
});
vi.mock('node:os', async (original) => ({
  ...(await original<typeof import('node:os')>()),
  release: () => '6.1.0',
}));

const sources = {
  cgroups: { obstacle: null, accountsMemory: false, limitsTasks: false },
  forwardingObstacle: async () => null,
  extensionObstacles: () => ({}),
  runtimeDirectory: '/run',
  isManaged: true,
};

test.each([
  ['/sys/kernel/mm/transparent_hugepage/enabled', 'CONFIG_TRANSPARENT_HUGEPAGE'],
  ['/proc/self/pagemap', 'CONFIG_PROC_PAGE_MONITOR'],
])('a kernel without %s cannot collapse, and it is told what it lacks', async (file, option) => {
  missing.clear();
  missing.add(file);
  expect((await abilities(sources, false)).collapse).toEqual({
    available: false,
    reason: expect.stringContaining(option),
  });
});

test('of controllers that cgroup v2 does not have it is told where they may be', async () => {
  const { memoryAccounting, taskLimit } = await abilities(sources, false);
  for (const ability of [memoryAccounting, taskLimit])
    expect(ability).toMatchObject({ reason: expect.stringContaining('or the kernel lacks it') });
});
