import { readdirSync, readFileSync } from 'node:fs';
import { findPackageJSON } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { Failure } from '../../output/failure.ts';

/** A file of the page. */
export interface PageFile {
  readonly type: string;
  readonly content: Buffer;
  readonly gzipped: Buffer;
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Where the built page is, below the directory of package.json: in the built envctl, and in a clone. */
const PLACES = ['share/console', 'node_modules/.cache/console'];

/** All files of the page by their path, `/` and `/main.js`. They are read once, so no path of a request reaches a disk. */
export function readPageFiles(): ReadonlyMap<string, PageFile> {
  const root = dirname(findPackageJSON('..', import.meta.url) ?? '');
  for (const place of PLACES) {
    const files = readAll(join(root, place));
    if (files.size > 0) return files;
  }
  throw new Failure('failed', 'the page of the console is not built: `npm run build console` builds it');
}

function readAll(directory: string): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>();
  for (const name of namesIn(directory)) {
    const type = TYPES[extname(name)];
    if (type === undefined) continue;
    const content = readFileSync(join(directory, name));
    files.set(name === 'index.html' ? '/' : `/${name}`, { type, content, gzipped: gzipSync(content) });
  }
  return files;
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
