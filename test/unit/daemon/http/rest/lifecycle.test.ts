import Fastify, { type FastifyInstance } from 'fastify';
import pino from 'pino';
import { describe, expect, onTestFinished, test } from 'vitest';
import { sendError } from '../../../../../src/daemon/http/admission/errors.ts';
import { disableBodyParsing } from '../../../../../src/daemon/http/admission/requests.ts';
import { envsRoutes, healthRoutes } from '../../../../../src/daemon/http/rest/guest.ts';
import { initRoutes } from '../../../../../src/daemon/http/rest/init.ts';
import type { Guest } from '../../../../../src/daemon/services/guest/guest.ts';
import { Health } from '../../../../../src/daemon/services/guest/health.ts';
import { Init } from '../../../../../src/daemon/services/init/init.ts';
import { type InitDependencies, initSteps } from '../../../../../src/daemon/services/init/steps.ts';
import type { FreezeAudit } from '../../../../../src/daemon/services/pause/sweep.ts';
import { withCalls } from '../../../../support/clients/calls.ts';
import { initDependencies } from '../../../../support/services/init-step.ts';

const HANDED_OVER = { build: '1', processes: 1, exits: 0, watchers: 0, volumes: 0, forwards: 0 };

function setUp(
  audit: FreezeAudit | null = null,
  own: Partial<InitDependencies> = {},
): { app: FastifyInstance; guest: Guest; init: Init } {
  const app = Fastify();
  onTestFinished(() => app.close());
  disableBodyParsing(app);
  withCalls(app);
  app.setErrorHandler((error, _request, reply) => sendError(reply, error));
  // As in the daemon, where /init reads its body itself.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
  let unreported = audit;
  const takeAudit = () => {
    const taken = unreported;
    unreported = null;
    return taken;
  };
  const keepAudit = (kept: FreezeAudit) => {
    unreported = kept;
  };
  const dependencies = initDependencies({
    freezer: { audit: () => unreported, takeAudit, keepAudit, thaw: () => {} },
    ...own,
  });
  const { guest } = dependencies;
  const idle = { active: false };
  const health = new Health({
    version: '1',
    cgroups: { obstacle: 'none here', accountsMemory: false, limitsTasks: false },
    forwardingObstacle: async () => null,
    extensionObstacles: () => ({}),
    ...{ runtimeDirectory: '/run', isManaged: false },
    ...{ freezer: idle, filesystemFreezer: idle },
  });
  healthRoutes(app, health, guest);
  envsRoutes(app, guest);
  const logger = pino({ enabled: false });
  const init = new Init(initSteps(dependencies));
  initRoutes(app, init, logger);
  return { app, guest, init };
}

test('GET /health', async () => {
  const { app } = setUp();
  const response = await app.inject('/health');
  expect([response.statusCode, response.body]).toEqual([204, '']);
});

test('GET /envs', async () => {
  const { app, guest } = setUp();
  guest.environment = { A: 'ü' };
  const response = await app.inject('/envs');
  expect(response.json()).toEqual({ A: 'ü' });
  expect(response.headers['content-type']).toBe('application/json; charset=utf-8');
});

describe('POST /init', () => {
  const json = { 'content-type': 'application/json' };

  test.each([
    ['no body', {}],
    ['no body, but a type', { headers: json }],
    ['an empty object', { headers: json, payload: '{}' }],
    ['white space', { headers: json, payload: ' \n' }],
    ['an object of no type', { payload: '{"envVars":{}}' }],
    ['an object of another type', { headers: { 'content-type': 'text/plain' }, payload: '{}' }],
  ])('%s is accepted', async (_, options) => {
    const { app } = setUp();
    const response = await app.inject({ method: 'POST', url: '/init', ...options });
    expect([response.statusCode, response.body]).toEqual([204, '']);
    expect(response.headers['x-envd-version']).toBe('0.6.13');
  });

  test('changes the guest, but only with the right token', async () => {
    const { app, guest } = setUp();
    const post = (payload: object) => app.inject({ method: 'POST', url: '/init', payload });
    expect((await post({ accessToken: 'one', envVars: { A: '1' } })).statusCode).toBe(204);
    expect(guest).toMatchObject({ accessToken: 'one', environment: { A: '1' } });
    const refused = await post({ accessToken: 'two', envVars: {} });
    expect(refused.statusCode).toBe(401);
    expect(refused.json()).toEqual({
      code: 401,
      message: 'unauthorized access, the access token does not match',
    });
    expect(guest).toMatchObject({ accessToken: 'one', environment: { A: '1' } });
  });

  test('returns the freeze audit until a 204 with it was sent, but only to an authorised caller', async () => {
    const { app, guest } = setUp({ visited: 3, frozen: 2, escaped: 1, violations: 0, truncated: false });
    const post = async (payload: object) => {
      const { statusCode, headers } = await app.inject({ method: 'POST', url: '/init', payload });
      return [statusCode, headers['x-envd-freeze-audit']];
    };
    const audit = '{"visited":3,"frozen":2,"escaped":1,"violations":0,"truncated":false}';
    guest.accessToken = 'one';
    expect(await post({ accessToken: 'two' })).toEqual([401, undefined]);
    Object.defineProperty(guest, 'environment', {
      set: () => {
        throw new Error('broken');
      },
    });
    expect(await post({ accessToken: 'one', envVars: {} })).toEqual([500, audit]);
    expect(await post({ accessToken: 'one' })).toEqual([204, audit]);
    expect(await post({ accessToken: 'one' })).toEqual([204, undefined]);
  });

  test('tells one of several concurrent callers what an upgrade has handed over, and what a freeze missed', async () => {
    const { promise: mounted, resolve } = Promise.withResolvers<void>();
    const audit = { visited: 3, frozen: 2, escaped: 1, violations: 0, truncated: false };
    const { app, init } = setUp(audit, { volumes: { mount: () => mounted } });
    init.keepHandover(HANDED_OVER);
    const url = `${await app.listen({ host: '127.0.0.1', port: 0 })}/init`;
    const calls = [1, 2, 3].map(() => fetch(url, { method: 'POST', body: '{"volumeMounts":[]}' }));
    let arrived = 0;
    init.on('progress', () => {
      // All wait for the same mount, so they are answered in one turn.
      if (++arrived === calls.length) resolve();
    });
    const answers = await Promise.all(calls);
    const told = answers.map(({ status, headers }) => [status, headers.get('x-envd-handover')]);
    expect(told.sort()).toEqual([
      [204, null],
      [204, null],
      [204, JSON.stringify(HANDED_OVER)],
    ]);
    const audits = answers.map(({ headers }) => headers.get('x-envd-freeze-audit'));
    expect(audits.filter((header) => header !== null)).toEqual([JSON.stringify(audit)]);
  });

  test('tells the next caller both if an answer was lost', async () => {
    const audit = { visited: 3, frozen: 2, escaped: 1, violations: 0, truncated: false };
    const { app, init } = setUp(audit);
    init.keepHandover(HANDED_OVER);
    const { promise: lost, resolve } = Promise.withResolvers<void>();
    app.addHook('onSend', async ({ headers }, reply) => {
      if (headers['x-lost'] === undefined) return;
      reply.raw.once('close', resolve);
      reply.raw.destroy();
    });
    const url = `${await app.listen({ host: '127.0.0.1', port: 0 })}/init`;
    await expect(fetch(url, { method: 'POST', headers: { 'x-lost': '' } })).rejects.toThrow();
    await lost;
    const { headers } = await fetch(url, { method: 'POST' });
    expect(headers.get('x-envd-handover')).toBe(JSON.stringify(HANDED_OVER));
    expect(headers.get('x-envd-freeze-audit')).toBe(JSON.stringify(audit));
  });

  test.each([
    ['{', 'request body is not valid JSON'],
    ['{"accessToken": "secret",}', 'request body is not valid JSON'],
    ['[]', 'request body must be an object'],
    ['{"envVars": 5}', 'envVars must be an object'],
  ])('%s is 400', async (payload, message) => {
    const { app } = setUp();
    const response = await app.inject({ method: 'POST', url: '/init', headers: json, payload });
    expect(response.statusCode).toBe(400);
    expect(response.json()).toEqual({ code: 400, message });
  });
});
