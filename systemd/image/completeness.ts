import { readFileSync } from 'node:fs';
import type { OutputChunk } from 'rolldown';
import { parseAst } from 'rolldown/parseAst';

/** How often a program has each kind of statement and expression, and each text. */
type Contents = ReadonlyMap<string, number>;

/**
 * Throws when one of our modules has fewer statements, expressions or texts in the bundle than in its source. Then the bundler has
 * removed a part of the program.
 */
export function requireComplete({ code, moduleIds, modules }: OutputChunk): void {
  const texts = new Map<string, number>();
  for (const path of moduleIds.filter((id) => id.startsWith('/') && !id.includes('/node_modules/'))) {
    const source = contentsOf(readFileSync(path, 'utf8'), path.endsWith('.ts') ? 'ts' : 'js');
    requireAll(source, contentsOf(modules[path]?.code ?? '', 'js'), path);
    for (const [each, count] of source) if (isText(each)) texts.set(each, count + (texts.get(each) ?? 0));
  }
  // The bundler minifies the whole bundle after it has reported the code of each module, so the texts are checked again.
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

/** Returns what a node counts as; null: the bundle may have it in another form. */
function whatIs({ type, value }: Node): string | null {
  if (/^(?!TS).*(Statement|Expression)$/.test(type)) return type;
  // A literal may become a template, and keys may lose their quotes, so only text with a space counts.
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

/** Returns whether a node is a type, which the bundle does not have. The expressions inside assertions of types remain. */
function isType({ type }: Node): boolean {
  return /^TS(?!(As|Satisfies|NonNull)Expression)/.test(type);
}
