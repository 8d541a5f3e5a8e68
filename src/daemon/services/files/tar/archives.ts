import { Allowance } from '../../../../base/allowance.ts';
import { EnvdError } from '../../../../base/errors.ts';
import { packDirectory } from './pack.ts';

/** Archives that are read or written at a time: each takes about 1 MiB and up to 260 descriptors. */
const MAX_ARCHIVES = 32;

/** Packs and unpacks directories; methods throw `resource_exhausted` when too many do. */
export class Archives {
  readonly #free = new Allowance(MAX_ARCHIVES);

  /** See `packDirectory`. */
  async *pack(path: string): AsyncGenerator<Buffer> {
    using _ = this.#take();
    yield* packDirectory(path);
  }

  #take(): Disposable {
    if (!this.#free.take(1)) {
      const message = `more than ${MAX_ARCHIVES} archives at a time: try again later`;
      throw new EnvdError('resource_exhausted', message);
    }
    return { [Symbol.dispose]: () => this.#free.release(1) };
  }
}
