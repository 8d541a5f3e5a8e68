import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { FUZZ } from './targets.ts';

/** What runs a target; libFuzzer's arguments follow. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

const NATIVE = fileURLToPath(new URL('../../native', import.meta.url));
const C = fileURLToPath(new URL('c', import.meta.url));

const JAZZER = fileURLToPath(import.meta.resolve('@jazzer.js/core'));

/** Sources that a target in C needs besides the one that it includes. */
const SOURCES: Readonly<Record<string, readonly string[]>> = {
  walk: ['src/support/mounts.c', 'src/support/rights.c'],
};

/** Flags of targets in C: those of the addon. Optimised, so that functions which are not called need nothing. */
export function flagsOfC(name: string): string[] {
  const sanitizers = ['-fsanitize=address,undefined', '-fno-sanitize-recover=undefined'];
  return [
    ...['@compile_flags.txt', '-Wno-error', '-w', '-O1', '-g', '-fno-omit-frame-pointer'],
    ...[...sanitizers, '-include', join(C, 'fuzz.h'), join(C, `${name}.c`), ...(SOURCES[name] ?? [])],
  ];
}

/** Builds a target with clang and libFuzzer. */
export function buildC(name: string): Program {
  const command = join(FUZZ, 'c', name);
  mkdirSync(dirname(command), { recursive: true });
  execFileSync('clang', [...flagsOfC(name), '-fsanitize=fuzzer', '-o', command], { cwd: NATIVE });
  return { command, args: [], env: { ASAN_OPTIONS: 'detect_leaks=1' } };
}

/** Bundles a target into one module, which Jazzer.js instruments. */
export async function buildTypeScript(name: string): Promise<Program> {
  const input = fileURLToPath(new URL(`targets/${name}.ts`, import.meta.url));
  // As deep as the sources are, which look for the addon.
  const file = join(FUZZ, 'a/b/c', `${name}.mjs`);
  const build = await rolldown({ input, platform: 'node', external: /^(?![./]|@bufbuild)/ });
  await build.write({ file, format: 'esm', sourcemap: 'inline', codeSplitting: false });
  const isAsync = /^export async function fuzz\b/m.test(readFileSync(input, 'utf8'));
  return {
    command: process.execPath,
    args: [join(dirname(JAZZER), 'cli.js'), file, ...(isAsync ? [] : ['--sync'])],
    // Its own detectors take connections and files that targets are about for bugs.
    env: { ...olderGlibc(), JAZZER_DISABLE_BUG_DETECTORS: '[".*"]' },
  };
}

/** The prebuilt libFuzzer of Jazzer.js wants this version of glibc, for three functions; Debian 12 has 2.36. */
const WANTED_GLIBC = 2.38;
/** vna_flags of a version that need not be there. Source: Linux Standard Base, "Symbol Versioning". */
const VER_FLG_WEAK = 2;

/** With an older glibc: a copy of the addon that does without, and the functions. */
function olderGlibc(): Record<string, string> {
  const report = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  if (Number(report.header.glibcVersionRuntime ?? WANTED_GLIBC) >= WANTED_GLIBC) return {};
  const [library, copy, hook] = ['glibc.so', 'fuzzer.node', 'hook.cjs'].map((name) => join(FUZZ, name));
  if (!library || !copy || !hook) throw new TypeError('three names');
  const addon = `fuzzer-${process.platform}-${process.arch}.node`;
  // A dependency of Jazzer.js.
  const fuzzer = createRequire(JAZZER).resolve('@jazzer.js/fuzzer');
  const original = join(dirname(fuzzer), '../prebuilds', addon);
  const source = fileURLToPath(new URL('glibc.c', import.meta.url));
  replace(library, (path) => execFileSync('cc', ['-shared', '-fPIC', '-o', path, source]));
  replace(copy, (path) => writeFileSync(path, weakened(readFileSync(original))));
  const redirect = `const { Module } = require('node:module');
const load = Module._extensions['.node'];
Module._extensions['.node'] = (module, file) => load(module, file.endsWith('${addon}') ? '${copy}' : file);\n`;
  replace(hook, (path) => writeFileSync(path, redirect));
  return { LD_PRELOAD: library, NODE_OPTIONS: `--require=${hook}` };
}

/** Another run may use the file. */
function replace(path: string, write: (path: string) => void): void {
  write(`${path}.${process.pid}`);
  renameSync(`${path}.${process.pid}`, path);
}

/** Makes the versions that are missing weak in an ELF file's `.gnu.version_r`. Source: elf(5). */
function weakened(file: Buffer): Buffer {
  const start = Number(file.readBigUInt64LE(40));
  const [size, count] = [file.readUInt16LE(58), file.readUInt16LE(60)];
  const section = (index: number) => file.subarray(start + index * size, start + (index + 1) * size);
  const offset = (header: Buffer) => Number(header.readBigUInt64LE(24));
  for (let index = 0; index < count; index++) {
    const header = section(index);
    if (header.readUInt32LE(4) !== 0x6ffffffe) continue;
    const names = offset(section(header.readUInt32LE(40)));
    for (let need = offset(header), next = 1; next !== 0; need += next) {
      for (let aux = need + file.readUInt32LE(need + 8), more = 1; more !== 0; aux += more) {
        const name = names + file.readUInt32LE(aux + 8);
        const text = file.toString('latin1', name, file.indexOf(0, name));
        if (MISSING.has(text)) file.writeUInt16LE(VER_FLG_WEAK, aux + 4);
        more = file.readUInt32LE(aux + 12);
      }
      next = file.readUInt32LE(need + 12);
    }
  }
  return file;
}

const MISSING = new Set(['GLIBC_2.38', 'GLIBCXX_3.4.32']);
