import { expect, test } from 'vitest';
import { startDaemon } from '../../support/programs/daemon.ts';
import { DAEMON_PROGRAM } from '../../support/programs/programs.ts';

/** The command of a daemon of the sources that cannot read those for which `isGone` is true of `url` and `listens`. */
const withoutSources = (isGone: string) => {
  const hooks = `
import { registerHooks } from 'node:module';
import { Server } from 'node:net';
let listens = false;
const { listen } = Server.prototype;
Server.prototype.listen = function (...options) {
  listens = true;
  return listen.apply(this, options);
};
registerHooks({
  load(url, context, next) {
    if (${isGone}) throw new Error('gone: ' + url);
    return next(url, context);
  },
});`;
  const program = `data:text/javascript,${encodeURIComponent(hooks)}`;
  return [process.execPath, '--import', program, DAEMON_PROGRAM] as const;
};

test('a daemon that listens needs its sources no more', async () => {
  await using daemon = await startDaemon({ command: withoutSources("listens && url.endsWith('.ts')") });
  expect((await fetch(`${daemon.url}/envs`)).status).toBe(200);
  expect(daemon.log.filter(({ level }) => level >= 50)).toEqual([]);
});

test('a daemon that cannot read its sources ends before it listens', async () => {
  const start = startDaemon({ command: withoutSources("url.endsWith('/daemon/http/routes.ts')") });
  await expect(start.then((daemon) => daemon.stop())).rejects.toThrow('daemon exited with 1');
});
