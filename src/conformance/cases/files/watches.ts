import { strict as assert } from 'node:assert';
import { Code, ConnectError } from '@connectrpc/connect';
import { type Check, given, section } from '../../suite/cases.ts';
import { refused, type TestedDaemon, until } from '../../suite/daemon.ts';
import { NotRun } from '../../suite/not-run.ts';
import { briefly, CaseWatch, insideWatched, ofKind, WATCH_WAYS, watching } from './case-watch.ts';
import { WATCH_SCENES } from './watch-scenes.ts';

const inBothWays: Readonly<Record<string, Check>> = Object.fromEntries(
  WATCH_WAYS.flatMap((way) =>
    Object.entries(WATCH_SCENES).map(([name, [options, scene]]) => [
      `${way}: ${name}`,
      async (daemon: TestedDaemon) => scene(daemon, await watching(daemon, way, options)),
    ]),
  ),
);

export const WATCHES = section('4', 'Watches', {
  ...inBothWays,
  'stream: the same in binary': async (daemon) => {
    const watch = await CaseWatch.streamed(daemon, await daemon.makeDir('watched'), {}, 'binary');
    await daemon.upload(insideWatched(daemon, 'file'), 'x');
    assert.deepEqual(await watch.told(), ['CREATE file', 'CHMOD file', 'WRITE file']);
  },
  'stream: the watch is live when start has come': async (daemon) => {
    for (let round = 0; round < 10; round += 1) {
      const watch = await CaseWatch.streamed(daemon, await daemon.makeDir('watched'), { recursive: true });
      await daemon.shell(`: >'${insideWatched(daemon, `${round}`)}'`);
      assert((await watch.told()).includes(`CREATE ${round}`));
    }
  },
  'stream: the directory deleted is REMOVE ., and a clean end': async (daemon) => {
    const watch = await watching(daemon, 'stream');
    await daemon.filesystem.remove({ path: insideWatched(daemon) });
    assert.equal((await watch.toEnd()).at(-1), 'REMOVE .');
  },
  'stream: the directory moved is RENAME ., and a clean end': async (daemon) => {
    const watch = await watching(daemon, 'stream');
    await daemon.filesystem.move({ source: insideWatched(daemon), destination: daemon.at('elsewhere') });
    assert.deepEqual(await watch.toEnd(), ['RENAME .']);
  },
  'stream: keepalives come as often as asked': async (daemon) => {
    const path = await daemon.makeDir();
    const headers = { 'keepalive-ping-interval': '1' };
    for await (const { event } of daemon.filesystem.watchDir({ path }, { headers }))
      if (event.case === 'keepalive') break;
  },
  'polled: events are readable in the very next call': async (daemon) => {
    const path = await daemon.makeDir('watched');
    const { watcherId } = await daemon.filesystem.createWatcher({ path });
    daemon.atEnd(() => daemon.filesystem.removeWatcher({ watcherId }));
    for (let round = 0; round < 10; round += 1) {
      await daemon.upload(insideWatched(daemon, `${round}`), 'x');
      const { events } = await daemon.filesystem.getWatcherEvents({ watcherId });
      assert.deepEqual(events.map(briefly), [`CREATE ${round}`, `CHMOD ${round}`, `WRITE ${round}`]);
    }
  },
  'polled: each event is told once, and none when nothing happens': async (daemon) => {
    const watch = await watching(daemon, 'polled');
    await daemon.upload(insideWatched(daemon, 'file'), 'x');
    assert.equal((await watch.told()).length, 3);
    assert.deepEqual(await watch.told(), []);
  },
  'polled: events that were dropped are told by one event named ., and the watch goes on': given('slow')(
    async (daemon) => {
      const path = await daemon.makeDir('watched');
      const { watcherId } = await daemon.filesystem.createWatcher({ path });
      daemon.atEnd(() => daemon.filesystem.removeWatcher({ watcherId }));
      const files = 100_000;
      await daemon.shell(`cd '${path}' && i=0; while [ $i -lt ${files} ]; do : >f$i; i=$((i + 1)); done`);
      const { events } = await daemon.filesystem.getWatcherEvents({ watcherId });
      const created = new Set(events.map(briefly).filter(ofKind('CREATE')));
      assert(
        created.size === files || events.map(briefly).includes('UNSPECIFIED .'),
        `${created.size} are told`,
      );
      await daemon.upload(`${path}/after`);
      await until(async () => {
        const { events: later } = await daemon.filesystem.getWatcherEvents({ watcherId });
        return later.map(briefly).includes('CREATE after');
      });
    },
  ),
  'polled: a watcher that was removed, or never was, is not_found': async (daemon) => {
    const { watcherId } = await daemon.filesystem.createWatcher({ path: await daemon.makeDir() });
    await daemon.filesystem.removeWatcher({ watcherId });
    for (const id of [watcherId, 'conformance-none']) {
      await refused(daemon.filesystem.getWatcherEvents({ watcherId: id }), Code.NotFound);
      await refused(daemon.filesystem.removeWatcher({ watcherId: id }), Code.NotFound);
    }
  },
  'two watches of one directory are told everything each': async (daemon) => {
    const both = [await watching(daemon, 'stream'), await watching(daemon, 'polled')];
    await daemon.shell(`: >'${insideWatched(daemon, 'file')}'`);
    for (const watch of both) assert((await watch.told()).includes('CREATE file'));
  },
  'nothing there is not_found, a file invalid_argument': async (daemon) => {
    await daemon.upload(daemon.at('file'));
    const first = async (path: string) => {
      for await (const _ of daemon.filesystem.watchDir({ path })) return;
    };
    for (const [name, code] of [
      ['none', Code.NotFound],
      ['file', Code.InvalidArgument],
    ] as const) {
      await refused(first(daemon.at(name)), code);
      await refused(daemon.filesystem.createWatcher({ path: daemon.at(name) }), code);
    }
  },
  'a network mount is refused unless it is allowed': async (daemon) => {
    const mounts = await daemon.shell('cat /proc/self/mounts');
    const [, mounted] = /^\S+ (\S+) (?:fuse\.|nfs4? |nfs |cifs )/m.exec(mounts) ?? [];
    if (mounted === undefined) throw new NotRun('the guest has no network mount');
    const call = daemon.filesystem.createWatcher({ path: mounted });
    await refused(call, Code.InvalidArgument, /^cannot watch path on network filesystem: /);
  },
  'a watch that its client leaves does not hold up others': async (daemon) => {
    const path = await daemon.makeDir('watched');
    const gone = new AbortController();
    const stream = daemon.filesystem.watchDir({ path }, { signal: gone.signal })[Symbol.asyncIterator]();
    await stream.next();
    gone.abort();
    await stream.next().catch((error: unknown) => assert.equal(ConnectError.from(error).code, Code.Canceled));
    const watch = await watching(daemon, 'polled');
    await daemon.shell(`: >'${insideWatched(daemon, 'file')}'`);
    let told: string[] = [];
    await until(async () => {
      told = [...told, ...(await watch.told())];
      return told.includes('CREATE file');
    });
  },
});
