import { constants } from 'node:fs';
import { Allowance } from '../../../../base/allowance.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { DirectoryWriter } from '../../../os/directory-writer.ts';
import { explain } from '../../../os/errno.ts';
import type { Lanes } from '../../../os/lanes.ts';
import { O_PATH } from '../../../os/open-flags.ts';
import { Place } from '../../../os/place.ts';
import type { User } from '../../../os/users.ts';
import type { WriteGate } from '../../freeze/write-gate.ts';
import { packDirectory } from './pack.ts';
import { type Unpacked, unpack } from './unpack.ts';

/** Archives that are read or written at a time: each takes about 1 MiB and up to 260 descriptors. */
const MAX_ARCHIVES = 32;

/** Packs and unpacks directories; methods throw `resource_exhausted` when too many do. */
export class Archives {
  readonly #free = new Allowance(MAX_ARCHIVES);
  readonly #lanes: Lanes;
  readonly #gate: WriteGate;

  constructor(lanes: Lanes, gate: WriteGate) {
    this.#lanes = lanes;
    this.#gate = gate;
  }

  /** See `packDirectory`. */
  async *pack(path: string): AsyncGenerator<Buffer> {
    using _ = this.#take();
    yield* packDirectory(path, this.#lanes);
  }

  /**
   * Unpacks an archive in a directory, which is made if it is missing; see `unpack`. Leaves the gate while it waits for the
   * client. Throws `unavailable` while the gate is shut.
   */
  async unpack(
    path: string,
    user: User,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
  ): Promise<Unpacked> {
    using _ = this.#take();
    return await this.#gate.run(async () => {
      await using root = await openTarget(path, user, this.#lanes);
      const beside = <T>(step: () => Promise<T>) => this.#gate.beside(step);
      return await unpack(this.#gate.outside(source), root, { shown: path, user, signal, beside });
    });
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
