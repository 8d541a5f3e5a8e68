import { readFile, stat } from 'node:fs/promises';
import type { FastifyInstance } from 'fastify';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { INTERFACE_VERSION } from '../../base/program/version.ts';

/** A template that the create hook knows. */
interface Template {
  readonly id: string;
  readonly aliases: readonly string[];
}

/**
 * Adds the operations that list templates and look one up, from a file with a line for each template: its id and its aliases.
 * The file is read for each request, so that a change counts at once.
 * @param path is null if the platform gives no list
 */
export function templateRoutes(app: FastifyInstance, path: string | null): void {
  app.get('/templates', async () => {
    const { templates, changedAt } = await read(path);
    return templates.map((template) => viewOf(template, changedAt));
  });
  app.get<{ Params: { readonly alias: string } }>('/templates/aliases/:alias', async ({ params }) => {
    const { templates } = await read(path);
    const found = templates.find(({ id, aliases }) => [id, ...aliases].includes(params.alias));
    if (found) return { templateID: found.id, public: false };
    throw new EnvdError('not_found', `template '${params.alias}' is not known`);
  });
}

/** Throws `unimplemented` without a file, and `unavailable` when it cannot be read. */
async function read(path: string | null) {
  if (path === null) {
    const message = 'this gateway has no --template-file: it passes any template on to the create hook';
    throw new EnvdError('unimplemented', message);
  }
  try {
    const [text, { mtime }] = await Promise.all([readFile(path, 'utf8'), stat(path)]);
    return { templates: parse(text), changedAt: mtime.toISOString() };
  } catch (error) {
    throw new EnvdError('unavailable', `cannot read the list of templates: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** Skips empty lines and those that begin with `#`. */
function parse(text: string): readonly Template[] {
  return text.split('\n').flatMap((line) => {
    const [id = '', ...aliases] = line.trim().split(/\s+/);
    return id === '' || id.startsWith('#') ? [] : [{ id, aliases }];
  });
}

/** Returns members without which published clients fail. Unknown ones are empty or 0. */
function viewOf({ id, aliases }: Template, changedAt: string) {
  const unknown = { buildID: '', buildCount: 0, spawnCount: 0, cpuCount: 0, memoryMB: 0, diskSizeMB: 0 };
  return {
    templateID: id,
    names: aliases,
    aliases,
    ...unknown,
    public: false,
    buildStatus: 'ready',
    createdAt: changedAt,
    updatedAt: changedAt,
    createdBy: null,
    lastSpawnedAt: null,
    envdVersion: INTERFACE_VERSION,
  };
}
