import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { freezeFilesystem, thawFilesystem } from '../../../../../src/daemon/linux/system/machine.ts';
import { loopMount, untilUninterruptible } from '../../../../support/machine/cgroups.ts';
import { isWritable } from '../../../../support/machine/frozen.ts';
import { mountTmpfs } from '../../../../support/machine/mounts.ts';

/** A program that writes to `file`; resolves when it is blocked in that write. */
async function writeAndHang(file: string) {
  const writer = spawn('sh', ['-c', 'echo x > "$0"', file]);
  const ended = once(writer, 'exit');
  await untilUninterruptible(writer.pid);
  return { ended };
}

describe('a frozen file system', () => {
  test('blocks writers until the thaw, but not readers', async () => {
    using filesystem = loopMount();
    writeFileSync(`${filesystem.path}/old`, 'content');
    await freezeFilesystem(filesystem.path);
    const writer = await writeAndHang(`${filesystem.path}/new`);
    expect(await readFile(`${filesystem.path}/old`, 'utf8')).toBe('content');
    await thawFilesystem(filesystem.path);
    expect(await writer.ended).toEqual([0, null]);
    expect(readFileSync(`${filesystem.path}/new`, 'utf8')).toBe('x\n');
  });

  test('can be frozen again and thawed again', async () => {
    using filesystem = loopMount();
    await thawFilesystem(filesystem.path);
    await freezeFilesystem(filesystem.path);
    await freezeFilesystem(filesystem.path);
    await thawFilesystem(filesystem.path);
    expect(await isWritable(filesystem.path)).toBe(true);
    await thawFilesystem(filesystem.path);
  });

  test('can be thawed while all pool threads are blocked in writes', async () => {
    using filesystem = loopMount();
    await freezeFilesystem(filesystem.path);
    const writes = Array.from({ length: 16 }, (_, i) => writeFile(`${filesystem.path}/${i}`, 'x'));
    const blocked = () =>
      execFileSync('sh', ['-c', 'cat /proc/$0/task/*/stat', String(process.pid)], { encoding: 'utf8' })
        .split('\n')
        .filter((line) => line.includes(') D ')).length;
    await expect.poll(blocked).toBeGreaterThanOrEqual(4);
    await thawFilesystem(filesystem.path);
    await expect(Promise.all(writes)).resolves.toHaveLength(16);
  });
});

describe('refuses', () => {
  test('a file system that cannot be frozen; thawing it succeeds', async () => {
    const path = mountTmpfs('1m');
    await expect(freezeFilesystem(path)).rejects.toMatchObject({
      kind: 'failed_precondition',
      message: `the file system of '${path}' cannot be frozen`,
    });
    await thawFilesystem(path);
  });

  test('a path that is missing, no directory, or invalid', async () => {
    await expect(freezeFilesystem('/nowhere')).rejects.toMatchObject({
      code: 'ENOENT',
      syscall: 'open',
      path: '/nowhere',
    });
    await expect(thawFilesystem('/etc/passwd')).rejects.toMatchObject({ code: 'ENOTDIR' });
    await expect(freezeFilesystem('/nowhere\0/x')).rejects.toMatchObject({ code: 'EINVAL' });
    await expect(freezeFilesystem(`/${'x'.repeat(5000)}`)).rejects.toMatchObject({ code: 'ENAMETOOLONG' });
  });
});

test('workers that end during a freeze or thaw do not crash the process', async () => {
  using filesystem = loopMount();
  const fixture = fileURLToPath(new URL('../../../../support/workers/fsfreeze-worker.ts', import.meta.url));
  const child = spawn(process.execPath, [fixture, filesystem.path], { stdio: 'inherit' });
  expect(await once(child, 'exit')).toEqual([0, null]);
});
