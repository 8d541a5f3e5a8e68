import {
  chownSync,
  closeSync,
  constants,
  lchownSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { O_PATH, O_TMPFILE } from '../../src/daemon/linux/paths/open-flags.ts';

type Native = typeof import('../../native/index.d.ts');

/** One use of the addon in a directory; returns what a caller sees, without numbers of descriptors and inodes. */
export interface Operation {
  readonly name: string;
  call(native: Native, directory: string): unknown;
  /** Whether this result, other than the one without a fault, is what the addon promises; `failed`: the point. */
  readonly mayBe?: (result: unknown, failed: string) => boolean;
  /** What its failure may leave, besides files that are each as before or as after it. */
  readonly mayLeave?: RegExp;
}

const NOBODY = 65534;
/** Of a start. */
const LIMIT_MS = 1000;
const { O_RDONLY, O_RDWR, O_WRONLY, O_DIRECTORY, O_CREAT, O_NOFOLLOW } = constants;
const bytes = (text: string) => Buffer.from(text);

/** The files that every operation finds. */
export function prepare(directory: string): void {
  mkdirSync(join(directory, 'd/e/f'), { recursive: true });
  writeFileSync(join(directory, 'file'), 'content of the file');
  writeFileSync(join(directory, 'd/a'), 'a');
  writeFileSync(join(directory, 'd/e/b'), 'b');
  linkSync(join(directory, 'd/a'), join(directory, 'd/hard'));
  symlinkSync('d/e', join(directory, 'link'));
  symlinkSync('d/e', join(directory, 'users'));
  lchownSync(join(directory, 'users'), NOBODY, NOBODY);
  mkdirSync(join(directory, 'own'));
  chownSync(join(directory, 'own'), NOBODY, NOBODY);
  mkdirSync(join(directory, 'many'));
  for (let index = 0; index < 5; index++) writeFileSync(join(directory, `many/${index}`), `${index}`);
}

/** Calls with the descriptor of an open file, and closes it. */
async function opened<T>(path: string, flags: number, use: (descriptor: number) => T): Promise<Awaited<T>> {
  const descriptor = openSync(path, flags, 0o644);
  try {
    return await use(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Text of a process, its exit, or the step that failed, as an error of that step. */
function run(native: Native, file: string, args: readonly string[]): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const fixed = [0, 0, -1, 0, 0, 4, 100, LIMIT_MS, args.length, 1, 0, 0, 0, 0, 7];
  const strings = ['', file, '/', ...args, 'A=b'].map((text) => `${text}\0`).join('');
  let ends: number[] = [];
  native.spawn(Buffer.from(Uint32Array.from(fixed).buffer), bytes(strings), (event, a, b, c, d) => {
    if (event === 'started' || event === 'ran') {
      ends = [b, c, d];
      return;
    }
    if (event !== 'exited' && event !== 'signaled') {
      reject(Object.assign(new Error(`${event}: ${a}`), { code: `E${a}`, syscall: event }));
      return;
    }
    const [, out = -1, error = -1] = ends;
    const texts = [out, error].map((end) => readAll(end));
    for (const end of ends) if (end >= 0) closeSync(end);
    resolve([event, a, texts]);
  });
  return promise;
}

function readAll(descriptor: number): string {
  const room = Buffer.alloc(1000);
  return room.toString('utf8', 0, readSync(descriptor, room));
}

/** Records without inodes, times and devices. */
const summary = (records: Buffer) => {
  const found: unknown[] = [];
  for (let at = 0; at < records.length; at += records.readUInt32LE(at)) {
    const [mode, target, uid, gid] = [4, 8, 12, 16].map((offset) => records.readUInt32LE(at + offset));
    const [nameLength, targetLength] = [records.readUInt32LE(at + 40), records.readUInt32LE(at + 44)];
    const name = records.toString('latin1', at + 80, at + 80 + nameLength);
    const rest = records.toString('latin1', at + 80 + nameLength, at + records.readUInt32LE(at));
    found.push([name, mode, target, uid, gid, targetLength, rest]);
  }
  return found;
};

export const OPERATIONS: readonly Operation[] = [
  {
    name: 'openPlace',
    call: async (native, directory) => {
      const { directory: at, ...place } = await native.openPlace(bytes(`${directory}/link/b`), true);
      closeSync(at);
      return place;
    },
  },
  {
    name: "openPlace through a user's link",
    call: async (native, directory) => {
      const { directory: at, ...place } = await native.openPlace(bytes(`${directory}/users/../x/y/z`), true);
      closeSync(at);
      return place;
    },
  },
  {
    name: 'openAt',
    call: (native, directory) =>
      opened(directory, O_RDONLY | O_DIRECTORY, async (at) => {
        closeSync(await native.openAt(at, bytes('new'), O_CREAT | O_WRONLY, null));
      }),
  },
  {
    name: 'openAt as a user',
    call: (native, directory) =>
      opened(`${directory}/own`, O_RDONLY | O_DIRECTORY, async (at) => {
        closeSync(await native.openAt(at, bytes('new'), O_CREAT | O_WRONLY, NOBODY));
      }),
  },
  {
    name: 'openBelow',
    call: (native, directory) =>
      opened(directory, O_RDONLY | O_DIRECTORY, (at) => {
        closeSync(native.openBelow(at, bytes('d/e/b'), O_RDONLY, false, null));
      }),
  },
  {
    name: 'openBelow as a user',
    call: (native, directory) =>
      opened(directory, O_RDONLY | O_DIRECTORY, (at) => {
        closeSync(native.openBelow(at, bytes('d/e'), O_RDONLY, false, NOBODY));
      }),
  },
  {
    name: 'makeDirectories',
    call: (native, directory) =>
      opened(directory, O_RDONLY | O_DIRECTORY, async (at) => {
        const made = await native.makeDirectories(at, bytes('new/er/est'), NOBODY, NOBODY, null);
        closeSync(made.directory);
        return made.isNew;
      }),
  },
  {
    name: 'makeDirectories as a user',
    call: (native, directory) =>
      opened(`${directory}/own`, O_RDONLY | O_DIRECTORY, async (at) => {
        const made = await native.makeDirectories(at, bytes('new/er'), NOBODY, NOBODY, NOBODY);
        closeSync(made.directory);
        return made.isNew;
      }),
  },
  {
    name: 'assertMayChange',
    call: (native, directory) =>
      opened(`${directory}/own`, O_RDONLY | O_DIRECTORY, (at) =>
        native.assertMayChange(at, bytes('x'), NOBODY),
      ),
  },
  {
    name: 'readEntry',
    call: async (native, directory) => summary(await native.readEntry(bytes(`${directory}/link`), 'user.')),
    // Neither the target of a link nor attributes are a reason to fail.
    mayBe: (result) => (result as unknown[]).length === 1,
  },
  {
    name: 'readDirectory',
    call: async (native, directory) => {
      const { records, descriptor } = await native.readDirectory(-1, bytes(directory), 'user.', null, true);
      closeSync(descriptor);
      return summary(records);
    },
    mayBe: (result) => (result as unknown[]).length === 6,
  },
  {
    name: 'readDirectory below',
    call: (native, directory) =>
      opened(directory, O_RDONLY | O_DIRECTORY, async (at) =>
        summary((await native.readDirectory(at, bytes('many'), 'user.', NOBODY, false)).records),
      ),
    mayBe: (result) => (result as unknown[]).length === 5,
  },
  {
    name: 'readNext',
    call: (native, directory) =>
      opened(`${directory}/many`, O_RDONLY | O_DIRECTORY, async (at) =>
        summary(await native.readNext(at, null)).sort(),
      ),
    mayBe: (result) => (result as unknown[]).length === 5,
  },
  {
    name: 'readSmallFile',
    call: (native, directory) => native.readSmallFile(`${directory}/file`, 100)?.content.toString() ?? null,
    mayBe: (result) => result === null,
  },
  {
    name: 'inodeNow',
    call: (native, directory) => native.inodeNow(`${directory}/file`) !== null,
    mayBe: (result) => result === false,
  },
  {
    name: 'storeFile, a new one',
    call: (native, directory) =>
      native.storeFile(`${directory}/new`, '', bytes('new content'), 'user.svc.', NOBODY, NOBODY),
    mayBe: (result) => result === false,
  },
  {
    name: 'storeFile over a file',
    call: async (native, directory) => {
      const path = `${directory}/file`;
      const inode = await native.storeFile(path, '', bytes('new'), 'user.svc.', NOBODY, NOBODY);
      return native.storeFile(path, String(inode), bytes('new'), 'user.svc.', NOBODY, NOBODY);
    },
    mayBe: (result) => result === false || typeof result === 'string',
    // Written, and not cut: the caller writes it again.
    mayLeave: /^\/file$/,
  },
  {
    name: 'publishFile',
    call: (native, directory) =>
      opened(directory, O_RDONLY | O_DIRECTORY, (at) =>
        opened(directory, O_TMPFILE | O_RDWR, async (file) => {
          writeFileSync(file, 'published');
          await native.publishFile(file, at, bytes('new'), NOBODY, NOBODY);
        }),
      ),
  },
  {
    name: 'copyRange',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDONLY, (from) =>
        opened(`${directory}/new`, O_CREAT | O_RDWR, (to) => native.copyRange(from, to, 0, 100)),
      ),
    // Made by the caller.
    mayLeave: /^\/new$/,
  },
  {
    name: 'reserveSpace',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDWR, (file) => native.reserveSpace(file, 0, 100_000)),
  },
  {
    name: 'attributes',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDWR, async (file) => {
        await native.writeAttribute(file, 'user.key', bytes('value'));
        const read = await native.readAttributes(file, 'user.');
        await native.writeAttribute(file, 'user.key', null);
        return read.toString('latin1');
      }),
    // Attributes that cannot be read are left out.
    mayBe: (result) => result === '',
  },
  {
    name: 'writeTimes',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDWR, (file) => native.writeTimes(file, 0, 1, 0, 1)),
  },
  {
    name: 'readLink',
    call: (native, directory) =>
      opened(`${directory}/link`, O_PATH | O_NOFOLLOW, async (link) => String(await native.readLink(link))),
  },
  { name: 'removeTree', call: (native, directory) => native.removeTree(`${directory}/d`) },
  {
    name: 'nextNames',
    call: (native, directory) =>
      opened(`${directory}/many`, O_RDONLY | O_DIRECTORY, (at) => (native.nextNames(at)?.length ?? 0) > 0),
  },
  {
    name: 'duplicate',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDONLY, (file) => closeSync(native.duplicate(file, false))),
  },
  {
    name: 'sendFile',
    call: async (native, directory) => {
      const { read, write } = native.messageQueue();
      try {
        const sent = await opened(`${directory}/file`, O_RDONLY, (file) =>
          native.sendFile(write, file, 0, 7),
        );
        return [sent, String(native.peekMessage(read).bytes)];
      } finally {
        closeSync(read);
        closeSync(write);
      }
    },
    // EAGAIN: the socket is full, or empty.
    mayBe: (result, failed) => /sendfile|recv/.test(failed) && JSON.stringify(result).includes('0,'),
  },
  {
    name: 'messages',
    call: (native) => {
      const { read, write } = native.messageQueue();
      try {
        native.sendMessage(write, bytes('text'), Buffer.from(Int32Array.of(read).buffer));
        const { bytes: text, descriptors } = native.peekMessage(read);
        closeSync(descriptors.readInt32LE());
        return String(text);
      } finally {
        closeSync(read);
        closeSync(write);
      }
    },
  },
  {
    name: 'inotify',
    call: async (native, directory) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const inotify = native.openInotify(resolve);
      try {
        inotify.add(bytes(directory), 0x100);
        writeFileSync(`${directory}/new`, '');
        await promise;
        return inotify.take() !== null;
      } finally {
        inotify.close();
      }
    },
  },
  {
    name: 'openTerminal',
    call: (native) => {
      const { master, slave } = native.openTerminal(80, 24);
      try {
        native.resizeTerminal(master, 100, 30);
        return slave.startsWith('/dev/pts/');
      } finally {
        closeSync(master);
      }
    },
  },
  {
    name: 'setCgroupFrozen',
    call: (native, directory) => {
      writeFileSync(`${directory}/cgroup.freeze`, '');
      native.setCgroupFrozen(directory, true);
      return readFileSync(`${directory}/cgroup.freeze`, 'utf8');
    },
    mayLeave: /cgroup\.freeze$/,
  },
  { name: 'createMemory', call: (native) => closeSync(native.createMemory()) },
  {
    name: 'mapMemory',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDWR, (file) => String(native.mapMemory(file, 7))),
  },
  { name: 'openSocketDiagnosis', call: (native) => closeSync(native.openSocketDiagnosis()) },
  {
    name: 'pollDescriptor',
    call: async (native) => {
      const { read, write } = native.messageQueue();
      try {
        const { promise, resolve } = Promise.withResolvers<number>();
        using wait = new DisposableStack();
        const set = native.pollDescriptor(read, resolve);
        wait.defer(() => set(-1));
        set(1);
        native.sendMessage(write, bytes('x'), Buffer.alloc(0));
        return [await promise, native.pendingBytes(read)];
      } finally {
        closeSync(read);
        closeSync(write);
      }
    },
  },
  {
    name: 'splice',
    call: (native, directory) =>
      opened(`${directory}/file`, O_RDONLY, (file) => {
        const { read, write } = native.createPipe();
        try {
          return [native.splice(file, write, 7), native.splice(file, write, 1000), readAll(read)];
        } finally {
          closeSync(read);
          closeSync(write);
        }
      }),
    // EAGAIN.
    mayBe: (result) => JSON.stringify(result).includes('-1'),
  },
  {
    name: 'collapseHeap',
    call: async (native) => {
      const cancelled = Buffer.alloc(1);
      const { chunks } = await native.collapseHeap(cancelled);
      return chunks > 0 && cancelled[0] === 0;
    },
    mayBe: () => true,
  },
  { name: 'spawn', call: (native) => run(native, '/bin/echo', ['echo', 'out']) },
  {
    name: 'spawn of a script',
    call: (native) => run(native, '/bin/sh', ['sh', '-c', 'echo err >&2; exit 3']),
  },
];
