import { expect, test } from 'vitest';
import { firstCalls } from '../../../src/daemon/rehearsed-calls.ts';

const ROUNDS = 12;

/** The bodies of `/init` in each round, as text. */
function bodiesOf(initMembers: readonly string[]): string[] {
  return Array.from({ length: ROUNDS }, (_, round) => {
    const calls = firstCalls(round, { token: 'secret', prefix: 'svc', initMembers });
    return String(calls.find(({ path }) => path === '/init')?.body);
  });
}

const namesIn = (body: string) => Object.keys(JSON.parse(body));

test('half of the calls of /init have the members of the platform, in their order', () => {
  const members = ['volumeMounts', 'accessToken', 'unknown', 'timestamp'];
  const same = bodiesOf(members).filter((body) => `${namesIn(body)}` === `${members}`);
  expect(same.length).toBe(ROUNDS / 2);
  for (const body of same)
    expect(JSON.parse(body)).toMatchObject({ accessToken: 'secret', volumeMounts: null, unknown: null });
});

test('whatever the platform sends, nothing is rehearsed that would change the machine', () => {
  const hostile = ['caBundle', 'hyperloopIP', 'volumeMounts', '__proto__', 'constructor', 'toJSON'];
  for (const body of bodiesOf(hostile)) {
    const { caBundle, hyperloopIP, volumeMounts } = JSON.parse(body);
    expect([caBundle ?? null, hyperloopIP ?? null, volumeMounts ?? null]).toEqual([null, null, null]);
  }
});

test('without a call of the platform all have every member that has no effect', () => {
  const names = bodiesOf([]).map(namesIn);
  expect(new Set(names.map(String)).size).toBe(1);
  expect(names[0]).toEqual(expect.arrayContaining(['accessToken', 'timestamp', 'envVars']));
});
