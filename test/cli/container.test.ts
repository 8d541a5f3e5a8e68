import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { envctl } from '../support/programs/envctl.ts';
import { daemonCommand } from '../support/programs/programs.ts';

/* What is not seen in a container is not claimed. */

test('doctor does not say that the kernel has no huge pages where /sys/kernel is hidden', () => {
  const hidden = 'mount -t tmpfs none /sys/kernel && exec "$@" doctor || true';
  const [program, ...args] = daemonCommand();
  const told = execFileSync('unshare', ['-m', 'sh', '-c', hidden, 'sh', program, ...args], {
    encoding: 'utf8',
  });
  expect(told).toContain('a container hides /sys/kernel/mm/transparent_hugepage');
  expect(told).not.toContain('no transparent huge pages');
  const { verdict } = JSON.parse(told);
  expect(JSON.stringify(verdict.kernelOptions)).not.toContain('CONFIG_TRANSPARENT_HUGEPAGE');
});

test.each([
  [
    { frozen: 0, preFrozen: 0 },
    { collapsed: 0, alreadyHuge: 0 },
    ['nothing was frozen', 'nothing was collapsed'],
  ],
  [{ frozen: 3, preFrozen: 0 }, { collapsed: 0, alreadyHuge: 2 }, []],
])('pause-test says when it has done nothing: %j %j', async (freeze, collapse, wanted) => {
  const answers = new Map<string, object | null>([
    ['/freeze', freeze],
    ['/collapse', collapse],
    ['/unfreeze', null],
  ]);
  const server = createServer(({ url = '' }, response) => {
    const answer = answers.get(url.split('?')[0] ?? '');
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer ? JSON.stringify(answer) : '');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { code, stdout } = await envctl(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, [
    'pause-test',
  ]);
  expect(code).toBe(0);
  expect(stdout.match(/nothing was \w+/g) ?? []).toEqual(wanted);
});
