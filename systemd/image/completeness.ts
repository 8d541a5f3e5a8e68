import { readFileSync } from 'node:fs';
import type { OutputChunk } from 'rolldown';
import { parseAst } from 'rolldown/parseAst';

/** How often a program has each kind of statement and expression, and each text. */
type Contents = ReadonlyMap<string, number>;

/**
 * Throws when a module of ours has fewer statements or expressions of a kind, or fewer texts such as those of errors, in the
 * bundle than in its source: the bundler has then removed a part of the program.
 */
export function requireComplete({ code, moduleIds, modules }: OutputChunk): void {
  const texts = new Map<string, number>();
  for (const path of moduleIds.filter((id) => id.startsWith('/') && !id.includes('/node_modules/'))) {
    const source = contentsOf(readFileSync(path, 'utf8'), path.endsWith('.ts') ? 'ts' : 'js');
    requireAll(source, contentsOf(modules[path]?.code ?? '', 'js'), path);
    for (const [each, count] of source) if (isText(each)) texts.set(each, count + (texts.get(each) ?? 0));
  }
  // The bundler minifies the whole, after it has told the code of each module.
  requireAll(texts, contentsOf(code, 'js'), 'the sources');
}

function requireAll(wanted: Contents, found: Contents, where: string): void {
  for (const [what, count] of wanted) {
    const left = found.get(what) ?? 0;
    if (left < count) {
      throw new Error(
        `the bundle has ${left} of ${count} ${what} of ${where}: the bundler has removed the rest`,
      );
    }
  }
}

const isText = (what: string) => what.startsWith("'");

function contentsOf(code: string, lang: 'js' | 'ts'): Contents {
  const contents = new Map<string, number>();
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) for (const each of value) visit(each);
    if (!isNode(value) || isImport(value) || isType(value)) return;
    const what = whatIs(value);
    if (what !== null) contents.set(what, 1 + (contents.get(what) ?? 0));
    for (const member of Object.values(value)) visit(member);
  };
  visit(parseAst(code, { lang }));
  return contents;
}

/** What a node counts as; null: it need not be in the bundle as it is. */
function whatIs({ type, value }: Node): string | null {
  if (/^(?!TS).*(Statement|Expression)$/.test(type)) return type;
  // A literal may become a template, and keys may lose their quotes: texts are what has a space.
  const text: unknown = type === 'TemplateElement' ? value?.cooked : value;
  return typeof text === 'string' && text.includes(' ') ? `'${text}'` : null;
}

interface Node {
  readonly type: string;
  readonly value?: { readonly cooked?: unknown } | null;
  readonly [member: string]: unknown;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';
}

function isImport({ type, declaration }: Node): boolean {
  return /^(Import|Export(All|Named))/.test(type) && !declaration;
}

/** Types are gone in the bundle, but for the expressions that they are told of. */
function isType({ type }: Node): boolean {
  return /^TS(?!(As|Satisfies|NonNull)Expression)/.test(type);
}
