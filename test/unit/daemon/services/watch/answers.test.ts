import { expect, test } from 'vitest';
import { Answers } from '../../../../../src/daemon/services/watch/answers.ts';

test('calls to an unresponsive file system are limited, and others are answered meanwhile', async () => {
  const answers = new Answers();
  const silence = Promise.withResolvers<string>();
  let asked = 0;
  const question = () => {
    asked++;
    return silence.promise;
  };
  const waiting = Array.from({ length: 1 + 1024 }, () => answers.ask('slow', '/slow', question));
  await expect(answers.ask('slow', '/slow', question)).rejects.toMatchObject({
    kind: 'resource_exhausted',
    message: 'cannot ask the file system now: 1024 others are waiting: try again later',
  });
  expect(await answers.ask('quick', '/quick', async () => 'here')).toBe('here');
  expect(asked).toBe(1);
  silence.resolve('here');
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(['here']));
  expect(asked).toBe(1 + 1024);
});
