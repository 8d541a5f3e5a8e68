import { chmod, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isSystemError } from '../../base/errors.ts';
import { Failure } from '../output/failure.ts';

/** Flags, variables and contexts have these settings, which name a server and its credentials. */
export interface ConnectionSettings {
  readonly url?: string;
  readonly gateway?: string;
  readonly sandbox?: string;
  readonly port?: number;
  readonly token?: string;
  readonly apiKey?: string;
  readonly user?: string;
  readonly headerPrefix?: string;
}

const TEXTS = ['url', 'gateway', 'sandbox', 'token', 'apiKey', 'user', 'headerPrefix'] as const;

/** The named contexts, and the one that is used if none is named. */
export interface Contexts {
  readonly current: string | null;
  readonly contexts: ReadonlyMap<string, ConnectionSettings>;
}

/** A path of `cp` may begin with such a name. */
export const CONTEXT_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** The file of the named contexts, `envctl/config.json` in the user's directory of settings. Only its owner can read it. */
export class ContextFile {
  readonly path: string;

  constructor(directory: string) {
    this.path = join(directory, 'envctl', 'config.json');
  }

  /** Returns the contexts, or none if there is no file. Throws `Failure` when the file cannot be read or is malformed. */
  async read(): Promise<Contexts> {
    const text = await readFile(this.path, 'utf8').catch((error: unknown) => {
      if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
      throw new Failure('failed', `cannot read ${this.path}: ${(error as Error).message}`);
    });
    if (text === null) return { current: null, contexts: new Map() };
    try {
      return readContexts(JSON.parse(text));
    } catch {
      throw new Failure('failed', `${this.path} is not a file of envctl: correct it, or move it away`);
    }
  }

  /** Replaces the file by a rename, so that a reader never sees a part of it. */
  async write({ current, contexts }: Contexts): Promise<void> {
    const text = `${JSON.stringify({ current, contexts: Object.fromEntries(contexts) }, null, 2)}\n`;
    const fresh = `${this.path}.${process.pid}`;
    try {
      await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
      await rm(fresh, { force: true });
      await writeNew(fresh, text);
      await rename(fresh, this.path);
    } catch (error) {
      await rm(fresh, { force: true });
      throw new Failure('failed', `cannot write ${this.path}: ${(error as Error).message}`);
    }
  }
}

async function writeNew(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await chmod(path, 0o600);
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

function readContexts(value: unknown): Contexts {
  const { current, contexts } = asObject(value);
  const named = Object.entries(asObject(contexts)).map(
    ([name, settings]) => [name, readConnection(asObject(settings))] as const,
  );
  return { current: typeof current === 'string' ? current : null, contexts: new Map(named) };
}

function readConnection(value: Readonly<Record<string, unknown>>): ConnectionSettings {
  const texts = TEXTS.flatMap((name) => (value[name] === undefined ? [] : [[name, asText(value[name])]]));
  const { port } = value;
  return { ...Object.fromEntries(texts), ...(typeof port === 'number' && { port }) };
}

function asObject(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw new TypeError('not an object');
}

function asText(value: unknown): string {
  if (typeof value === 'string') return value;
  throw new TypeError('not a text');
}
