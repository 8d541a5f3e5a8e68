import { INTERFACE_VERSION } from '../../../base/program/version.ts';
import { type Abilities, type AbilitySources, abilities } from './abilities.ts';

interface HealthSources extends AbilitySources {
  readonly version: string;
  readonly freezer: { readonly active: boolean };
  readonly filesystemFreezer: { readonly active: boolean };
}

export interface HealthReport {
  readonly version: string;
  readonly interface: string;
  /** The time when this program was started, as RFC 3339 has it. */
  readonly since: string;
  readonly frozen: { readonly workload: boolean; readonly filesystem: boolean };
  readonly abilities: Abilities;
}

export class Health {
  readonly #sources: HealthSources;
  readonly #since = new Date(Date.now() - process.uptime() * 1000).toISOString();

  constructor(sources: HealthSources) {
    this.#sources = sources;
  }

  async read(): Promise<HealthReport> {
    const { version, freezer, filesystemFreezer } = this.#sources;
    const frozen = { workload: freezer.active, filesystem: filesystemFreezer.active };
    return {
      version,
      interface: INTERFACE_VERSION,
      since: this.#since,
      frozen,
      abilities: await abilities(this.#sources, !frozen.filesystem),
    };
  }
}
