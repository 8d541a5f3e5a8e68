import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { freezeFilesystem, thawFilesystem } from '../../../../src/daemon/os/machine.ts';
import { loopMount, untilUninterruptible } from '../../../support/cgroups.ts';
import { isWritable } from '../../../support/frozen.ts';
import { mountTmpfs } from '../../../support/mounts.ts';

/** A program that writes to `file`; resolves when it sleeps in that write. */
async function writeAndHang(file: string) {
  const writer = spawn('sh', ['-c', 'echo x > "$0"', file]);
  const ended = once(writer, 'exit');
  await untilUninterruptible(writer.pid);
  return { ended };
}

describe('a frozen file system', () => {
  test('lets nobody write until it is thawed, and everybody read', async () => {
    using filesystem = loopMount();
    writeFileSync(`${filesystem.path}/old`, 'content');
    await freezeFilesystem(filesystem.path);
    const writer = await writeAndHang(`${filesystem.path}/new`);
    expect(await readFile(`${filesystem.path}/old`, 'utf8')).toBe('content');
    await thawFilesystem(filesystem.path);
    expect(await writer.ended).toEqual([0, null]);
    expect(readFileSync(`${filesystem.path}/new`, 'utf8')).toBe('x\n');
  });

  test('frozen twice is thawed once, and thawed twice', async () => {
    using filesystem = loopMount();
    await thawFilesystem(filesystem.path);
    await freezeFilesystem(filesystem.path);
    await freezeFilesystem(filesystem.path);
    await thawFilesystem(filesystem.path);
    expect(await isWritable(filesystem.path)).toBe(true);
    await thawFilesystem(filesystem.path);
  });

  test('is thawed though every thread of the pool waits to write to it', async () => {
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
  test('a file system that cannot be frozen; thawing it is no error', async () => {
    const path = mountTmpfs('1m');
    await expect(freezeFilesystem(path)).rejects.toMatchObject({
      kind: 'failed_precondition',
      message: `the file system of '${path}' cannot be frozen`,
    });
    await thawFilesystem(path);
  });

  test('what is no directory, or a path that cannot be one', async () => {
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

test('a thread that ends in the middle harms nobody', async () => {
  using filesystem = loopMount();
  const fixture = fileURLToPath(new URL('../../../support/fsfreeze-worker.ts', import.meta.url));
  const child = spawn(process.execPath, [fixture, filesystem.path], { stdio: 'inherit' });
  expect(await once(child, 'exit')).toEqual([0, null]);
});
