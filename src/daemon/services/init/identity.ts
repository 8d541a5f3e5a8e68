import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { SerialQueue } from '../../../base/exclusion.ts';
import { readIfPresent, removeIfPresent, replaceTextFile } from '../../linux/files/text-file.ts';
import type { Guest } from '../guest/guest.ts';
import type { SandboxMetadata } from './metadata.ts';

/**
 * Publishes the sandbox and template ids to programs of the guest: as environment variables of every process, and as
 * files of the same names that contain the bare value.
 */
export class Identity {
  readonly #guest: Guest;
  readonly #directory: string;
  readonly #prefix: string;
  readonly #queue = new SerialQueue('write the identity');

  /** `directory`: such as `/run/svc`. `prefix`: of the names, such as `svc`; converted to upper case. */
  constructor(guest: Guest, directory: string, prefix: string) {
    this.#guest = guest;
    this.#directory = directory;
    this.#prefix = prefix.toUpperCase();
  }

  /** Replaces the published ids; null removes one. */
  async publish({ sandboxID, templateID }: Pick<SandboxMetadata, 'sandboxID' | 'templateID'>): Promise<void> {
    const prefix = this.#prefix;
    const names = {
      [`${prefix}_SANDBOX`]: 'true',
      [`${prefix}_SANDBOX_ID`]: sandboxID,
      [`${prefix}_TEMPLATE_ID`]: templateID,
    };
    this.#guest.changeOwnVariables(names);
    await this.#queue.run(() => this.#write(names));
  }

  async #write(names: Readonly<Record<string, string | null>>): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o755 });
    for (const [name, value] of Object.entries(names)) {
      const path = join(this.#directory, name);
      if (value === null) await removeIfPresent(path);
      else if ((await readIfPresent(path)) !== value) await replaceTextFile(path, value);
    }
  }
}
