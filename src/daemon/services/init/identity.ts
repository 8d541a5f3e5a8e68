import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { KeyedQueue } from '../../../base/exclusion.ts';
import { readIfPresent, removeIfPresent, replaceTextFile } from '../../linux/files/text-file.ts';
import type { Guest } from '../guest/guest.ts';
import type { SandboxMetadata } from './metadata.ts';

/**
 * Publishes the ids of the sandbox and of its template to programs of the guest: as environment variables of every process,
 * and as files of the same names, which contain nothing but the value.
 */
export class Identity {
  readonly #guest: Guest;
  readonly #directory: string;
  readonly #prefix: string;
  readonly #queue = new KeyedQueue('write the identity');

  /**
   * `directory` is where the files are, such as `/run/svc`; `prefix` begins the names and is put in upper case, such as
   * `svc`.
   */
  constructor(guest: Guest, directory: string, prefix: string) {
    this.#guest = guest;
    this.#directory = directory;
    this.#prefix = prefix.toUpperCase();
  }

  /** Replaces the ids; null removes one. Throws the errors of writing the files. */
  async publish({ sandboxID, templateID }: Pick<SandboxMetadata, 'sandboxID' | 'templateID'>): Promise<void> {
    const prefix = this.#prefix;
    const names = {
      [`${prefix}_SANDBOX`]: 'true',
      [`${prefix}_SANDBOX_ID`]: sandboxID,
      [`${prefix}_TEMPLATE_ID`]: templateID,
    };
    this.#guest.changeOwnVariables(names);
    await this.#queue.run('', () => this.#write(names));
  }

  async #write(names: Readonly<Record<string, string | null>>): Promise<void> {
    // Programs read the files by name. Whoever can list a directory can keep it locked.
    await mkdir(this.#directory, { recursive: true, mode: 0o711 });
    await chmod(this.#directory, 0o711);
    for (const [name, value] of Object.entries(names)) {
      const path = join(this.#directory, name);
      if (value === null) await removeIfPresent(path);
      else if ((await readIfPresent(path)) !== value) await replaceTextFile(path, value);
    }
  }
}
