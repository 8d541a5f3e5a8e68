import { constants } from 'node:fs';
import { Allowance } from '../../../../base/allowance.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { DirectoryWriter, O_PATH } from '../../../os/directory-writer.ts';
import { explain } from '../../../os/errno.ts';
import type { Lanes } from '../../../os/lanes.ts';
import { Place } from '../../../os/place.ts';
import type { User } from '../../../os/users.ts';
import { packDirectory } from './pack.ts';
import { type Unpacked, unpack } from './unpack.ts';

/** Archives that are read or written at a time: each takes about 1 MiB and up to 260 descriptors. */
const MAX_ARCHIVES = 32;

/** Packs and unpacks directories; methods throw `resource_exhausted` when too many do. */
export class Archives {
  readonly #free = new Allowance(MAX_ARCHIVES);
  readonly #lanes: Lanes;

  constructor(lanes: Lanes) {
    this.#lanes = lanes;
  }

  /** See `packDirectory`. */
  async *pack(path: string): AsyncGenerator<Buffer> {
    using _ = this.#take();
    yield* packDirectory(path, this.#lanes);
  }

  /** Unpacks an archive in a directory, which is made if it is missing; see `unpack`. */
  async unpack(
    path: string,
    user: User,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
  ): Promise<Unpacked> {
    using _ = this.#take();
    await using root = await openTarget(path, user, this.#lanes);
    return await unpack(source, root, { shown: path, user, signal });
  }

  #take(): Disposable {
    if (!this.#free.take(1)) {
      const message = `more than ${MAX_ARCHIVES} archives at a time: try again later`;
      throw new EnvdError('resource_exhausted', message);
    }
    return { [Symbol.dispose]: () => this.#free.release(1) };
  }
}

async function openTarget(path: string, user: User, lanes: Lanes): Promise<DirectoryWriter> {
  try {
    using place = await Place.open(path, true, lanes);
    await place.makeDirectory(user);
    const flags = constants.O_DIRECTORY | O_PATH;
    return new DirectoryWriter(await place.openFile(flags, '.'), place.owner);
  } catch (error) {
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path, 'make');
    throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
  }
}
