import { strict as assert } from 'node:assert';
import { EventType } from '../../../gen/filesystem/filesystem_pb.js';
import { type TestedDaemon, until } from '../../suite/daemon.ts';
import { type CaseWatch, type CaseWatchOptions, insideWatched, ofKind } from './case-watch.ts';

type WatchScene = (daemon: TestedDaemon, watch: CaseWatch) => Promise<void>;

/** What is told in both ways alike. */
export const WATCH_SCENES: Readonly<Record<string, readonly [CaseWatchOptions, WatchScene]>> = {
  'a new file uploaded is exactly CREATE, CHMOD, WRITE': [
    {},
    async (daemon, watch) => {
      await daemon.upload(insideWatched(daemon, 'new.txt'), 'content');
      assert.deepEqual(await watch.told(), ['CREATE new.txt', 'CHMOD new.txt', 'WRITE new.txt']);
    },
  ],
  'an overwritten file is WRITE': [
    {},
    async (daemon, watch) => {
      await daemon.upload(insideWatched(daemon, 'file'), 'one');
      await watch.told();
      await daemon.upload(insideWatched(daemon, 'file'), 'two');
      const told = await watch.told();
      assert(told.includes('WRITE file') && !told.includes('CREATE file'), String(told));
    },
  ],
  'a program creates, writes, changes the mode and deletes': [
    {},
    async (daemon, watch) => {
      await daemon.shell(`cd '${insideWatched(daemon)}' && : >f && echo x >>f && chmod 600 f && rm f`);
      assert.deepEqual(await watch.told(), ['CREATE f', 'WRITE f', 'CHMOD f', 'REMOVE f']);
    },
  ],
  'a rename is RENAME with the old name, then CREATE with the new one': [
    {},
    async (daemon, watch) => {
      await daemon.shell(`cd '${insideWatched(daemon)}' && : >old`);
      await watch.told();
      await daemon.filesystem.move({
        source: insideWatched(daemon, 'old'),
        destination: insideWatched(daemon, 'new'),
      });
      assert.deepEqual(await watch.told(), ['RENAME old', 'CREATE new']);
    },
  ],
  'moved out of the tree is RENAME, moved in CREATE': [
    { recursive: true },
    async (daemon, watch) => {
      await daemon.shell(`cd '${insideWatched(daemon)}' && mkdir d && : >d/f`);
      await watch.until('CREATE d/f');
      await daemon.shell(`cd '${daemon.directory}' && mv watched/d/f out`);
      assert.deepEqual(await watch.told(), ['RENAME d/f']);
      await daemon.shell(`cd '${daemon.directory}' && mv out watched/d/in`);
      assert.deepEqual(await watch.told(), ['CREATE d/in']);
    },
  ],
  'below the directory nothing is told unless it is recursive': [
    {},
    async (daemon, watch) => {
      await daemon.shell(`cd '${insideWatched(daemon)}' && mkdir d && : >d/f`);
      assert.deepEqual((await watch.told()).filter(ofKind('CREATE')), ['CREATE d']);
    },
  ],
  'recursive: directories made and filled at once, each entry CREATE once': [
    { recursive: true },
    async (daemon, watch) => {
      const rounds = 20;
      await daemon.shell(
        `cd '${insideWatched(daemon)}' && i=0; while [ $i -lt ${rounds} ]; do mkdir -p $i/a/b && : >$i/a/b/f; i=$((i + 1)); done`,
      );
      const wanted = Array.from({ length: rounds }, (_, i) => [`${i}`, `${i}/a`, `${i}/a/b`, `${i}/a/b/f`]);
      const created: string[] = [];
      // What is in a new directory may be found after a later change beside it; once all is there, nothing comes again.
      await until(async () => {
        created.push(...(await watch.told()).filter(ofKind('CREATE')));
        return created.length >= wanted.flat().length;
      });
      created.push(...(await watch.told()).filter(ofKind('CREATE')));
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
      await daemon.shell(`mkdir '${insideWatched(daemon, 'd')}'`);
      await watch.told();
      await daemon.shell(`: >'${insideWatched(daemon, 'd', 'f')}'`);
      assert.deepEqual((await watch.until('CREATE d/f')).filter(ofKind('CREATE')), ['CREATE d/f']);
    },
  ],
  'recursive: a tree is deleted, each entry REMOVE once': [
    { recursive: true },
    async (daemon, watch) => {
      await daemon.shell(`cd '${insideWatched(daemon)}' && mkdir -p a/b && : >a/b/f`);
      await watch.until('CREATE a/b/f');
      await daemon.filesystem.remove({ path: insideWatched(daemon, 'a') });
      assert.deepEqual((await watch.told()).filter(ofKind('REMOVE')).sort(), [
        'REMOVE a',
        'REMOVE a/b',
        'REMOVE a/b/f',
      ]);
    },
  ],
  'entries come when they are asked for, and not with REMOVE': [
    { includeEntry: true },
    async (daemon, watch) => {
      const path = insideWatched(daemon, 'file');
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
      await daemon.upload(insideWatched(daemon, 'file'), '12345');
      assert((await watch.events()).every(({ entry }) => entry === undefined));
    },
  ],
};
