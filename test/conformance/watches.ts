import { strict as assert } from 'node:assert';
import { randomUUID } from 'node:crypto';
import { Code, ConnectError } from '@connectrpc/connect';
import { EventType, type FilesystemEvent } from '../../src/gen/filesystem/filesystem_pb.js';
import { type Check, given, NotRun, section } from './cases.ts';
import { type Codec, type Daemon, refused, until } from './daemon.ts';

type Way = 'stream' | 'polled';
const WAYS: readonly Way[] = ['stream', 'polled'];

interface Options {
  readonly recursive?: boolean;
  readonly includeEntry?: boolean;
}

type Take = () => Promise<readonly FilesystemEvent[] | null>;

const MARK = '.conformance-';

/** A watch on a directory, streamed or polled. */
class Watch {
  readonly #daemon: Daemon;
  readonly #path: string;
  readonly #take: Take;

  private constructor(daemon: Daemon, path: string, take: Take) {
    this.#daemon = daemon;
    this.#path = path;
    this.#take = take;
  }

  static async polled(daemon: Daemon, path: string, options: Options = {}): Promise<Watch> {
    const { watcherId } = await daemon.filesystem.createWatcher({ path, ...options });
    daemon.atEnd(() => daemon.filesystem.removeWatcher({ watcherId }));
    return new Watch(daemon, path, async () => {
      const { events } = await daemon.filesystem.getWatcherEvents({ watcherId });
      if (events.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      return events;
    });
  }

  static async streamed(
    daemon: Daemon,
    path: string,
    options: Options = {},
    codec: Codec = 'JSON',
  ): Promise<Watch> {
    const gone = new AbortController();
    daemon.atEnd(async () => gone.abort());
    const stream = daemon.clients(codec).filesystem.watchDir({ path, ...options }, { signal: gone.signal });
    const messages = stream[Symbol.asyncIterator]();
    const first = await messages.next();
    assert.equal(first.value?.event.case, 'start', 'the first message is start');
    return new Watch(daemon, path, async () => {
      const { value, done } = await messages.next();
      if (done) return null;
      return value.event.case === 'filesystem' ? [value.event.value] : [];
    });
  }

  /** All events up to now. */
  async events(): Promise<FilesystemEvent[]> {
    const mark = `${MARK}${randomUUID()}`;
    await this.#daemon.filesystem.makeDir({ path: `${this.#path}/${mark}` });
    const events: FilesystemEvent[] = [];
    for (;;) {
      const some = await this.#take();
      assert(some, 'the watch has not ended');
      events.push(...some);
      if (some.some(({ name }) => name === mark)) return events.filter(({ name }) => !name.startsWith(MARK));
    }
  }

  /** The same as `TYPE name`. */
  async told(): Promise<string[]> {
    return (await this.events()).map(brief);
  }

  /** What is told until the watch ends by itself. */
  async toEnd(): Promise<string[]> {
    const all: string[] = [];
    for (let some = await this.#take(); some; some = await this.#take()) all.push(...some.map(brief));
    return all;
  }
}

const brief = ({ type, name }: FilesystemEvent) => `${EventType[type]} ${name}`;
const of = (kind: string) => (event: string) => event.startsWith(`${kind} `);

async function watching(daemon: Daemon, way: Way, options: Options = {}): Promise<Watch> {
  const path = await daemon.makeDir('watched');
  return way === 'polled' ? Watch.polled(daemon, path, options) : Watch.streamed(daemon, path, options);
}

const inside = (daemon: Daemon, ...names: readonly string[]) => daemon.at('watched', ...names);

type Scene = (daemon: Daemon, watch: Watch) => Promise<void>;

/** What is told in both ways alike. */
const SCENES: Readonly<Record<string, readonly [Options, Scene]>> = {
  'a new file uploaded is exactly CREATE, CHMOD, WRITE': [
    {},
    async (daemon, watch) => {
      await daemon.upload(inside(daemon, 'new.txt'), 'content');
      assert.deepEqual(await watch.told(), ['CREATE new.txt', 'CHMOD new.txt', 'WRITE new.txt']);
    },
  ],
  'an overwritten file is WRITE': [
    {},
    async (daemon, watch) => {
      await daemon.upload(inside(daemon, 'file'), 'one');
      await watch.told();
      await daemon.upload(inside(daemon, 'file'), 'two');
      const told = await watch.told();
      assert(told.includes('WRITE file') && !told.includes('CREATE file'), String(told));
    },
  ],
  'a program creates, writes, changes the mode and deletes': [
    {},
    async (daemon, watch) => {
      await daemon.shell(`cd '${inside(daemon)}' && : >f && echo x >>f && chmod 600 f && rm f`);
      assert.deepEqual(await watch.told(), ['CREATE f', 'WRITE f', 'CHMOD f', 'REMOVE f']);
    },
  ],
  'a rename is RENAME with the old name, then CREATE with the new one': [
    {},
    async (daemon, watch) => {
      await daemon.shell(`cd '${inside(daemon)}' && : >old`);
      await watch.told();
      await daemon.filesystem.move({ source: inside(daemon, 'old'), destination: inside(daemon, 'new') });
      assert.deepEqual(await watch.told(), ['RENAME old', 'CREATE new']);
    },
  ],
  'moved out of the tree is RENAME, moved in CREATE': [
    { recursive: true },
    async (daemon, watch) => {
      await daemon.shell(`cd '${inside(daemon)}' && mkdir d && : >d/f`);
      await watch.told();
      await daemon.shell(`cd '${daemon.directory}' && mv watched/d/f out`);
      assert.deepEqual(await watch.told(), ['RENAME d/f']);
      await daemon.shell(`cd '${daemon.directory}' && mv out watched/d/in`);
      assert.deepEqual(await watch.told(), ['CREATE d/in']);
    },
  ],
  'below the directory nothing is told unless it is recursive': [
    {},
    async (daemon, watch) => {
      await daemon.shell(`cd '${inside(daemon)}' && mkdir d && : >d/f`);
      assert.deepEqual((await watch.told()).filter(of('CREATE')), ['CREATE d']);
    },
  ],
  'recursive: directories made and filled at once, each entry CREATE once': [
    { recursive: true },
    async (daemon, watch) => {
      const rounds = 20;
      await daemon.shell(
        `cd '${inside(daemon)}' && i=0; while [ $i -lt ${rounds} ]; do mkdir -p $i/a/b && : >$i/a/b/f; i=$((i + 1)); done`,
      );
      const wanted = Array.from({ length: rounds }, (_, i) => [`${i}`, `${i}/a`, `${i}/a/b`, `${i}/a/b/f`]);
      const created: string[] = [];
      // What is in a new directory may be found after a later change beside it; once all is there, nothing comes again.
      await until(async () => {
        created.push(...(await watch.told()).filter(of('CREATE')));
        return created.length >= wanted.flat().length;
      });
      created.push(...(await watch.told()).filter(of('CREATE')));
      assert.deepEqual(
        created.sort(),
        wanted
          .flat()
          .map((name) => `CREATE ${name}`)
          .sort(),
      );
    },
  ],
  'recursive: a directory that appeared is watched, too': [
    { recursive: true },
    async (daemon, watch) => {
      await daemon.shell(`mkdir '${inside(daemon, 'd')}'`);
      await watch.told();
      await daemon.shell(`: >'${inside(daemon, 'd', 'f')}'`);
      assert.deepEqual((await watch.told()).filter(of('CREATE')), ['CREATE d/f']);
    },
  ],
  'recursive: a tree is deleted, each entry REMOVE once': [
    { recursive: true },
    async (daemon, watch) => {
      await daemon.shell(`cd '${inside(daemon)}' && mkdir -p a/b && : >a/b/f`);
      await watch.told();
      await daemon.filesystem.remove({ path: inside(daemon, 'a') });
      assert.deepEqual((await watch.told()).filter(of('REMOVE')).sort(), [
        'REMOVE a',
        'REMOVE a/b',
        'REMOVE a/b/f',
      ]);
    },
  ],
  'entries come when they are asked for, and not with REMOVE': [
    { includeEntry: true },
    async (daemon, watch) => {
      const path = inside(daemon, 'file');
      await daemon.upload(path, '12345');
      for (const { entry } of await watch.events()) assert.deepEqual([entry?.path, entry?.size], [path, 5n]);
      await daemon.filesystem.remove({ path });
      const removed = (await watch.events()).filter(({ type }) => type === EventType.REMOVE);
      assert.deepEqual(
        removed.map(({ entry }) => entry),
        [undefined],
      );
    },
  ],
  'no entries come unless they are asked for': [
    {},
    async (daemon, watch) => {
      await daemon.upload(inside(daemon, 'file'), '12345');
      assert((await watch.events()).every(({ entry }) => entry === undefined));
    },
  ],
};

const inBothWays: Readonly<Record<string, Check>> = Object.fromEntries(
  WAYS.flatMap((way) =>
    Object.entries(SCENES).map(([name, [options, scene]]) => [
      `${way}: ${name}`,
      async (daemon: Daemon) => scene(daemon, await watching(daemon, way, options)),
    ]),
  ),
);

export const WATCHES = section('4', 'Watches', {
  ...inBothWays,
  'stream: the same in binary': async (daemon) => {
    const watch = await Watch.streamed(daemon, await daemon.makeDir('watched'), {}, 'binary');
    await daemon.upload(inside(daemon, 'file'), 'x');
    assert.deepEqual(await watch.told(), ['CREATE file', 'CHMOD file', 'WRITE file']);
  },
  'stream: the watch is live when start has come': async (daemon) => {
    for (let round = 0; round < 10; round += 1) {
      const watch = await Watch.streamed(daemon, await daemon.makeDir('watched'), { recursive: true });
      await daemon.shell(`: >'${inside(daemon, `${round}`)}'`);
      assert((await watch.told()).includes(`CREATE ${round}`));
    }
  },
  'stream: the directory deleted is REMOVE ., and a clean end': async (daemon) => {
    const watch = await watching(daemon, 'stream');
    await daemon.filesystem.remove({ path: inside(daemon) });
    assert.equal((await watch.toEnd()).at(-1), 'REMOVE .');
  },
  'stream: the directory moved is RENAME ., and a clean end': async (daemon) => {
    const watch = await watching(daemon, 'stream');
    await daemon.filesystem.move({ source: inside(daemon), destination: daemon.at('elsewhere') });
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
      await daemon.upload(inside(daemon, `${round}`), 'x');
      const { events } = await daemon.filesystem.getWatcherEvents({ watcherId });
      assert.deepEqual(events.map(brief), [`CREATE ${round}`, `CHMOD ${round}`, `WRITE ${round}`]);
    }
  },
  'polled: each event is told once, and none when nothing happens': async (daemon) => {
    const watch = await watching(daemon, 'polled');
    await daemon.upload(inside(daemon, 'file'), 'x');
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
      const created = new Set(events.map(brief).filter(of('CREATE')));
      assert(
        created.size === files || events.map(brief).includes('UNSPECIFIED .'),
        `${created.size} are told`,
      );
      await daemon.upload(`${path}/after`);
      await until(async () => {
        const { events: later } = await daemon.filesystem.getWatcherEvents({ watcherId });
        return later.map(brief).includes('CREATE after');
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
    await daemon.shell(`: >'${inside(daemon, 'file')}'`);
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
    await daemon.shell(`: >'${inside(daemon, 'file')}'`);
    let told: string[] = [];
    await until(async () => {
      told = [...told, ...(await watch.told())];
      return told.includes('CREATE file');
    });
  },
});
