import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Fastify from 'fastify';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ExclusiveLock } from '../../../../../src/base/exclusion.ts';
import { sendError } from '../../../../../src/daemon/http/admission/errors.ts';
import { freezeRoutes } from '../../../../../src/daemon/http/rest/pause.ts';
import { Cgroup } from '../../../../../src/daemon/linux/cgroups/cgroup2.ts';
import { Freezer, type FreezerOptions } from '../../../../../src/daemon/services/pause/freezer.ts';
import { withCalls } from '../../../../support/clients/calls.ts';
import { testCgroup } from '../../../../support/machine/cgroups.ts';

function serve(workload: readonly Cgroup[], hierarchy: FreezerOptions['hierarchy'] = null) {
  const recordFile = join(tmpdir(), `envd-frozen-${process.pid}.json`);
  const lock = new ExclusiveLock();
  const freezer = new Freezer({
    workload,
    hierarchy,
    obstacle: null,
    recordFile,
    lock,
    onWatchdog: () => {},
    onStaleRecord: () => {},
  });
  const app = Fastify();
  withCalls(app);
  app.setErrorHandler((error, _request, reply) => sendError(reply, error));
  freezeRoutes(app, freezer);
  return {
    app,
    post: (url: string) => app.inject({ method: 'POST', url }),
    [Symbol.dispose]: () => freezer[Symbol.dispose](),
  };
}

describe('POST /freeze', () => {
  test('answers 204 without waiting, and 200 with statistics after waiting', async () => {
    using top = testCgroup();
    using server = serve([top]);
    const atOnce = await server.post('/freeze');
    expect([atOnce.statusCode, atOnce.body]).toEqual([204, '']);
    expect(top.freezeRequested()).toBe(true);
    const waited = await server.post('/freeze?mode=legacy&maxCgroups=0&maxWaitMs=1000');
    expect(waited.statusCode).toBe(200);
    expect(waited.json()).toMatchObject({
      mode: 'legacy',
      visited: 1,
      truncated: false,
      requested: 1,
      frozen: 1,
    });
    expect((await server.post('/unfreeze')).statusCode).toBe(204);
    expect(top.freezeRequested()).toBe(false);
  });

  test('takes mode and limits from the query', async () => {
    using top = testCgroup();
    const child = (name: string) => Cgroup.create(join(top.path, name));
    const [user, own] = [child('user'), child('own')];
    for (const name of ['a', 'b', 'c']) child(name);
    using server = serve([user], { top, own });
    const answer = await server.post('/freeze?mode=hierarchy&maxCgroups=1&maxWaitMs=1000');
    // The workload does not count.
    expect(answer.json()).toMatchObject({ mode: 'hierarchy', visited: 2, truncated: true });
    await server.post('/unfreeze');
  });

  test('a number that is not positive counts as missing', async () => {
    using top = testCgroup();
    using server = serve([top, top]);
    expect((await server.post('/freeze?maxWaitMs=-5')).statusCode).toBe(204);
    for (const bound of ['0', '-1', '']) {
      const answer = await server.post(`/freeze?maxCgroups=${bound}&maxWaitMs=1000`);
      expect(answer.json()).toMatchObject({ visited: 2, truncated: false });
    }
  });

  test.each([
    ['', 512],
    ['maxCgroups=600', 600],
    ['maxCgroups=8192', 8192],
    ['maxCgroups=999999999999', 8192],
  ])('the limit of visited cgroups is bounded: %s', async (query, bound) => {
    using server = serve([]);
    const freeze = vi.spyOn(Freezer.prototype, 'freeze');
    onTestFinished(() => freeze.mockRestore());
    expect((await server.post(`/freeze?maxWaitMs=1&${query}`)).statusCode).toBe(200);
    expect(freeze).toHaveBeenCalledWith(expect.objectContaining({ maxCgroups: bound }), expect.anything());
  });

  test.each([
    ['mode=eager', "mode must be one of legacy, hierarchy, not 'eager'"],
    ['maxCgroups=1.5', "maxCgroups must be a whole number, not '1.5'"],
    ['maxWaitMs=soon', "maxWaitMs must be a whole number, not 'soon'"],
    ['maxWaitMs=1&maxWaitMs=2', 'maxWaitMs must be given once'],
  ])('refuses %s', async (query, message) => {
    using server = serve([]);
    const answer = await server.post(`/freeze?${query}`);
    expect(answer.statusCode).toBe(400);
    expect(answer.json()).toEqual({ code: 400, message });
  });

  test('accepts any content type, as it reads no body', async () => {
    using server = serve([]);
    const headers = { 'content-type': 'application/json' };
    expect((await server.app.inject({ method: 'POST', url: '/freeze', headers })).statusCode).toBe(204);
    expect(
      (await server.app.inject({ method: 'POST', url: '/unfreeze', headers, body: '{' })).statusCode,
    ).toBe(204);
  });
});
