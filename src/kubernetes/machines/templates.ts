import type { V1ConfigMap } from '@kubernetes/client-node';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Watched } from '../cluster/watched.ts';
import { TEMPLATE } from '../pods/labels.ts';
import { readTemplate, type Template } from '../pods/template.ts';

interface Read {
  readonly version: string | undefined;
  readonly template: Template | null;
  readonly fault: string | null;
}

/** The templates of the namespace. One that cannot be used has a fault, which is logged once. */
export class Templates {
  readonly #maps: Watched<V1ConfigMap>;
  readonly #daemonImage: string;
  readonly #logger: Logger;
  /** By the names of ConfigMaps, so that each version of one is read once. */
  readonly #read = new Map<string, Read>();

  constructor(maps: Watched<V1ConfigMap>, daemonImage: string, logger: Logger) {
    this.#maps = maps;
    this.#daemonImage = daemonImage;
    this.#logger = logger;
  }

  /** Returns the template, its fault as text, or null if there is none. The first ConfigMap by name counts. */
  find(id: string): Template | string | null {
    const found = this.#sorted().find(({ metadata }) => metadata?.labels?.[TEMPLATE] === id);
    if (!found) return null;
    const { template, fault } = this.#of(found);
    return template ?? fault;
  }

  /** Returns the templates that can be used. */
  all(): readonly Template[] {
    const maps = this.#sorted();
    const names = new Set(maps.map(({ metadata }) => metadata?.name));
    for (const name of this.#read.keys()) if (!names.has(name)) this.#read.delete(name);
    const first = new Map<string, Template>();
    for (const { template } of maps.map((map) => this.#of(map)))
      if (template && !first.has(template.id)) first.set(template.id, template);
    return [...first.values()];
  }

  #sorted(): readonly V1ConfigMap[] {
    const name = ({ metadata }: V1ConfigMap) => metadata?.name ?? '';
    return [...this.#maps.list()].sort((a, b) => (name(a) < name(b) ? -1 : 1));
  }

  #of(map: V1ConfigMap): Read {
    const { name = '', resourceVersion: version } = map.metadata ?? {};
    const known = this.#read.get(name);
    if (known && known.version === version) return known;
    const read = this.#readNow(map, version);
    this.#read.set(name, read);
    if (read.fault !== null)
      this.#logger.warn({ configMap: name, fault: read.fault }, 'a template cannot be used');
    return read;
  }

  #readNow(map: V1ConfigMap, version: string | undefined): Read {
    try {
      return { version, template: readTemplate(map, this.#daemonImage), fault: null };
    } catch (error) {
      return { version, template: null, fault: messageOf(error) };
    }
  }
}
