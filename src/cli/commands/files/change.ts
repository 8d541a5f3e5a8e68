import { Failure, usageError } from '../../output/failure.ts';
import { formatTime } from '../../output/formats.ts';
import { remotePath } from '../../transfer/place.ts';
import { kindOf, makeDirectoryAt, statOrNull } from '../../transfer/remote-tree.ts';
import { defineCommand } from '../spec/command.ts';
import { PATH_ARGUMENT, shapeOf } from './ls.ts';

export const rmCommand = defineCommand<{ readonly recursive?: boolean; readonly force?: boolean }>({
  name: 'rm',
  summary: 'Remove files',
  examples: ['envctl rm -r :build'],
  arguments: [{ ...PATH_ARGUMENT, isVariadic: true }],
  options: [
    { flags: '-r, --recursive', help: 'remove directories, with everything below' },
    { flags: '-f, --force', help: 'say nothing of what does not exist' },
  ],
  json: '{"removed":[PATH]}',
  async run(call, { recursive, force }) {
    const connection = await call.connection();
    const removed: string[] = [];
    for (const path of call.arguments.map(remotePath)) {
      const entry = await statOrNull(connection, path);
      if (!entry && !force) throw new Failure('not_found', `path '${path}' does not exist`);
      if (entry && kindOf(entry) === 'directory' && !recursive)
        throw usageError(`'${path}' is a directory: --recursive removes it with everything below`);
      if (!entry) continue;
      await connection.call((options) => connection.files.remove({ path }, options));
      removed.push(path);
    }
    await call.output.result({ removed }, async () => {});
    return 0;
  },
});

export const mvCommand = defineCommand<object>({
  name: 'mv',
  summary: 'Move or rename a file or directory in the sandbox',
  examples: ['envctl mv :draft.txt :final.txt'],
  details: ['Missing directories of the new path are made.'],
  arguments: [
    { ...PATH_ARGUMENT, name: 'source' },
    { name: 'destination', help: 'the new path; an existing directory is not moved into' },
  ],
  options: [],
  json: '{"source","destination"}',
  async run(call) {
    const connection = await call.connection();
    const [source, destination] = [remotePath(call.argument(0)), remotePath(call.argument(1))];
    await connection.call((options) => connection.files.move({ source, destination }, options));
    await call.output.result({ source, destination }, async () => {});
    return 0;
  },
});

export const mkdirCommand = defineCommand<{ readonly parents?: boolean }>({
  name: 'mkdir',
  summary: 'Make directories, with those that lead to them',
  examples: ['envctl mkdir :a/b/c'],
  arguments: [{ ...PATH_ARGUMENT, isVariadic: true }],
  options: [{ flags: '-p, --parents', help: 'a directory that exists is no error' }],
  json: '{"made":[PATH]}',
  async run(call, { parents }) {
    const connection = await call.connection();
    const made: string[] = [];
    for (const path of call.arguments.map(remotePath)) {
      if (await makeDirectoryAt(connection, path)) made.push(path);
      else if (!parents) throw new Failure('failed', `'${path}' exists already: --parents allows that`);
    }
    await call.output.result({ made }, async () => {});
    return 0;
  },
});

export const statCommand = defineCommand<object>({
  name: 'stat',
  summary: 'Show what is known of a file',
  examples: ['envctl stat :notes.txt'],
  details: ['A link itself is shown, not what it leads to.'],
  arguments: [{ ...PATH_ARGUMENT, isVariadic: true }],
  options: [],
  json: 'one line per file, with the members of `ls`',
  async run(call) {
    const connection = await call.connection();
    const { output } = call;
    for (const path of call.arguments.map(remotePath)) {
      const entry = await statOrNull(connection, path);
      if (!entry) throw new Failure('not_found', `path '${path}' does not exist`);
      const shape = shapeOf(entry, entry.path);
      await output.result(shape, async () => {
        const { type, size, mode, permissions, owner, group, modified, target, metadata } = shape;
        const rows = [
          ['path', entry.path + (target === null ? '' : ` -> ${target}`)],
          ['type', type],
          ['size', `${size} bytes`],
          ['mode', `${mode} ${permissions}`],
          ['owner', `${owner}:${group}`],
          ['modified', modified === null ? '-' : `${formatTime(new Date(modified))} UTC`],
          ...Object.entries(metadata).map(([key, value]) => [`metadata ${key}`, value] as const),
        ];
        for (const [name = '', value = ''] of rows) await output.line(`${name.padEnd(9)} ${value}`);
      });
    }
    return 0;
  },
});
