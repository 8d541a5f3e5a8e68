import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { askHook } from '../../../src/gateway/hooks/ask.ts';
import { Signer } from '../../../src/gateway/hooks/signer.ts';

const MODULES = new URL('../../../src/gateway/hooks/', import.meta.url);

/** Asks a hook in a process group of its own, after `before`, and tells the error when its time limit has passed, too. */
function asking(path: string, before: string): string {
  return `
    import { openSync } from 'node:fs';
    import { setTimeout as delay } from 'node:timers/promises';
    import { askHook } from '${MODULES.href}ask.ts';
    import { Signer } from '${MODULES.href}signer.ts';
    const options = { hook: 'true', limitMs: 100, path: '${path}', signer: new Signer([]) };
    // As the gateway does.
    process.on('uncaughtException', () => process.stdout.write('uncaught '));
    process.stdout.write('asked: ');
    ${before}
    const asked = askHook(options, { event: 'list' }, 1024, new AbortController().signal);
    const told = await asked.then(String, (error) => error.code ?? error.name);
    await delay(200);
    process.stdout.write(told);`;
}

test.each([
  ['there is no shell', 'ENOENT', '/nowhere', ''],
  ['no descriptor is free', 'EMFILE', '/usr/bin:/bin', "try { for (;;) openSync('/dev/null'); } catch {}"],
])('where %s, a hook fails and ends nothing else', async (_why, code, path, before) => {
  const node = [process.execPath, '--input-type=module', '-e', asking(path, before)];
  const child = spawn('sh', ['-c', 'ulimit -n 256 && exec "$@"', 'sh', ...node], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [said, [exit, signal]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  expect([said, exit, signal]).toEqual([`asked: ${code}`, 0, null]);
});

test('a hook is not waited for beyond its time, although a process that has left its group keeps its output', async () => {
  const options = { hook: 'setsid sleep 10 & echo $!', limitMs: 300, path: process.env.PATH ?? '' };
  const asked = askHook(
    { ...options, signer: new Signer([]) },
    { event: 'list' },
    1024,
    new AbortController().signal,
  );
  const late = delay(5000, 'it is waited for');
  expect(await Promise.race([asked.catch(() => 'it has failed'), late])).toBe('it has failed');
});
