import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { brokenLinks } from './links.ts';
import { escapeHtml, pageOf, renderFile } from './proto-page.ts';

/*
 * Builds dist-docs/, the API reference, as pages that load nothing from elsewhere: Redoc's for the OpenAPI documents, and one for
 * each proto file, made from the descriptors and comments that buf gives. Fails if a page has a broken link.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const OUT = join(ROOT, 'dist-docs');

/** The OpenAPI documents, with the page of each and what it is about. */
const OPENAPI = [
  { file: 'envd.openapi.yaml', page: 'envd.html', about: 'The daemon: files, the guest, pause and resume' },
  {
    file: 'gateway.openapi.yaml',
    page: 'gateway.html',
    about: 'The gateway: sandboxes and their time to live',
  },
] as const;

const PROTO = [
  { file: 'process/process.proto', page: 'process.html', about: 'The daemon: processes and terminals' },
  { file: 'filesystem/filesystem.proto', page: 'filesystem.html', about: 'The daemon: files and watches' },
] as const;

/** Runs a program of a package. Its output is shown only if it fails. */
function run(program: string, ...args: readonly string[]): Buffer {
  const path = join(ROOT, 'node_modules', program);
  return execFileSync(process.execPath, [path, ...args], {
    cwd: join(ROOT, 'proto'),
    stdio: 'pipe',
    maxBuffer: 16 * 1024 ** 2,
  });
}

function buildOpenApi(): void {
  for (const { file, page } of OPENAPI) {
    run(
      '@redocly/cli/bin/cli.js',
      ...[
        'build-docs',
        file,
        '--config=redocly.yaml',
        '--template=reference/redoc.hbs',
        '--inlineBundle',
        `--output=${join(OUT, page)}`,
      ],
      ...['--openapi.disableTelemetry=true', '--openapi.hideDownloadButtons=true'],
    );
  }
}

function buildProto(): void {
  const image = run('@bufbuild/buf/bin/buf', 'build', '--as-file-descriptor-set', '--output=-#format=binpb');
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, image));
  for (const { file, page } of PROTO) {
    const found = registry.getFile(file);
    if (!found) throw new Error(`proto/ has no file ${file}`);
    writeFileSync(join(OUT, page), renderFile(found));
  }
}

function buildIndex(): void {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const row = ({ file, page, about }: (typeof OPENAPI | typeof PROTO)[number]) =>
    `<li><a href="${page}">${escapeHtml(about)}</a> (<code>proto/${file}</code>)</li>`;
  const list = [...PROTO, ...OPENAPI].map(row).join('\n');
  const body = `<h1>envd ${escapeHtml(version)}: API reference</h1>\n<ul>\n${list}\n</ul>\n`;
  writeFileSync(join(OUT, 'index.html'), pageOf('envd: API reference', body));
}

rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT);
buildOpenApi();
buildProto();
buildIndex();
const broken = brokenLinks(OUT);
if (broken.length > 0) {
  process.stderr.write(`docs: broken links in dist-docs/:\n${broken.map((link) => `  ${link}\n`).join('')}`);
  process.exitCode = 1;
} else process.stdout.write('dist-docs/index.html\n');
