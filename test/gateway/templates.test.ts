import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Template } from 'e2b';
import { expect, test } from 'vitest';
import { scratch } from '../support/machine/scratch.ts';
import { API_KEY, startGateway } from '../support/programs/gateway.ts';
import { rejection } from '../support/programs/sandbox.ts';

test('templates are those of the file, and a build is 501', async () => {
  const file = join(scratch(), 'templates');
  writeFileSync(file, '# of the platform\nbase\n\npython-3 python py\n');
  await using gateway = await startGateway({ args: [`--template-file=${file}`] });
  const options = { apiKey: API_KEY, apiUrl: gateway.url, validateApiKey: false };
  const { body } = await gateway.call('GET /templates');
  expect(body).toMatchObject([
    { templateID: 'base', aliases: [], buildStatus: 'ready' },
    { templateID: 'python-3', aliases: ['python', 'py'] },
  ]);
  for (const [name, exists] of [
    ['base', true],
    ['py', true],
    ['pyt', false],
    ['#', false],
  ] as const)
    expect([name, await Template.exists(name, options)]).toEqual([name, exists]);
  expect((await gateway.call('GET /templates/aliases/python')).body).toEqual({
    templateID: 'python-3',
    public: false,
  });
  // A change counts at once.
  writeFileSync(file, 'other\n');
  expect(await Template.exists('other', options)).toBe(true);
  const build = Template.build(Template().fromBaseImage(), 'mine', options);
  expect(String(await rejection(build))).toContain('501');
  rmSync(file);
  expect((await gateway.call('GET /templates')).status).toBe(503);
  expect((await gateway.call('GET /templates', undefined, { 'x-api-key': 'wrong' })).status).toBe(401);
});
