import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A page of the reference: what it links to, what it loads, and the anchors that it has. */
interface Page {
  readonly links: readonly string[];
  readonly loads: readonly string[];
  readonly anchors: ReadonlySet<string>;
}

/**
 * The links of the pages of a directory that lead to no page or anchor of it, and what a page would load from elsewhere, each as
 * `PAGE: TARGET`. Links to other sites are not followed. Those of Redoc's menu begin with `/`, and its router serves them.
 */
export function brokenLinks(directory: string): string[] {
  const names = globSync('*.html', { cwd: directory });
  const pages = new Map(names.map((name) => [name, readPage(readFileSync(join(directory, name), 'utf8'))]));
  return names.flatMap((name) => {
    const { links, loads } = pages.get(name) ?? readPage('');
    return [...links.filter((link) => !leadsSomewhere(link, name, pages)), ...loads].map(
      (one) => `${name}: ${one}`,
    );
  });
}

function leadsSomewhere(link: string, from: string, pages: ReadonlyMap<string, Page>): boolean {
  if (/^(https?:|\/)/.test(link)) return true;
  const [path = '', anchor] = link.split('#', 2);
  const target = pages.get(path || from);
  return target !== undefined && (anchor === undefined || target.anchors.has(anchor));
}

function readPage(html: string): Page {
  // What is in a script is no markup.
  const markup = html.replaceAll(/(<script\b[^>]*>)[\s\S]*?<\/script>/g, '$1');
  const all = (pattern: RegExp) => Array.from(markup.matchAll(pattern), ([, value = '']) => value);
  return {
    links: all(/<a\b[^>]*?\shref="([^"]*)"/g),
    loads: [
      ...all(/<(?:script|img|iframe|source)\b[^>]*?\ssrc="(?!data:)([^"]*)"/g),
      ...all(/<link\b[^>]*?\shref="(?!data:)([^"]*)"/g),
    ],
    anchors: new Set(all(/\sid="([^"]*)"/g)),
  };
}
