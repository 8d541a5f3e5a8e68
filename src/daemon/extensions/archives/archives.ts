import { constants } from 'node:fs';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { DirectoryWriter } from '../../linux/files/directory-writer.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { O_PATH } from '../../linux/paths/open-flags.ts';
import { explain } from '../../linux/system/errno.ts';
import type { User } from '../../linux/system/users.ts';
import { ArchivePlaces } from '../../services/files/archive-places.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import { packDirectory } from './pack/pack.ts';
import { type Unpacked, unpack } from './unpack/unpack.ts';

/** Packs and unpacks directories. Its methods throw `resource_exhausted` when too many archives are under way. */
export class Archives {
  readonly #read = new ArchivePlaces();
  readonly #written = new ArchivePlaces();
  readonly #lanes: Lanes;
  readonly #gate: WriteGate;

  constructor(lanes: Lanes, gate: WriteGate) {
    this.#lanes = lanes;
    this.#gate = gate;
  }

  /** Packs a directory; see `packDirectory`. `drop` is that of `ArchivePlaces.sending`. */
  pack(path: string, drop: (reason: Error) => void): AsyncGenerator<Buffer> {
    return this.#read.sending(packDirectory(path, this.#lanes), drop);
  }

  /**
   * Unpacks an archive in a directory, which is made if it is missing; see `unpack`. It leaves the gate while it waits
   * for the client. Throws `unavailable` while the gate is shut.
   */
  async unpack(
    path: string,
    user: User,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
  ): Promise<Unpacked> {
    return this.#written.receiving(source, (pieces) =>
      this.#gate.run(async () => {
        await using root = await openTarget(path, user, this.#lanes);
        const runOverlapping = <T>(step: () => Promise<T>) => this.#gate.runOverlapping(step);
        return await unpack(this.#gate.leaveWhileWaiting(pieces), root, {
          shown: path,
          user,
          signal,
          runOverlapping,
        });
      }),
    );
  }
}

async function openTarget(path: string, user: User, lanes: Lanes): Promise<DirectoryWriter> {
  try {
    using place = await PathHandle.open(path, true, lanes);
    await place.makeDirectory(user);
    const flags = constants.O_DIRECTORY | O_PATH;
    return new DirectoryWriter(await place.openFile(flags, '.'), place.owner);
  } catch (error) {
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path, 'make');
    throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
  }
}
