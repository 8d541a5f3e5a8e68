import { expect, test } from 'vitest';
import { buildEnvironment } from '../../../../../../src/daemon/services/process/lifecycle/environment.ts';
import { ADA } from '../../../../../support/machine/users.ts';

test("without variables it is the daemon's PATH and those of the user", () => {
  expect(buildEnvironment('/bin', ADA, {}, {}, '/work')).toEqual({
    PATH: '/bin',
    HOME: '/home/ada',
    USER: 'ada',
    LOGNAME: 'ada',
    PWD: '/work',
  });
});

test("the platform's variables override the user's, and the request's override all", () => {
  const platform = { HOME: '/platform', REGION: 'a', STAGE: 'platform', PWD: '/image' };
  const requested = { STAGE: 'request', PATH: '/opt/bin', EMPTY: '', PWD: '/client' };
  expect(buildEnvironment('/bin', ADA, platform, requested, '/work')).toEqual({
    PATH: '/opt/bin',
    HOME: '/platform',
    USER: 'ada',
    LOGNAME: 'ada',
    REGION: 'a',
    STAGE: 'request',
    EMPTY: '',
    PWD: '/work',
  });
});
