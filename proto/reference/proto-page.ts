import type {
  DescComments,
  DescEnum,
  DescField,
  DescFile,
  DescMessage,
  DescMethod,
  DescService,
} from '@bufbuild/protobuf';
import { getComments, getDeclarationString } from '@bufbuild/protoplugin';

const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
code { font: 0.9em ui-monospace, monospace }
dt { margin-top: 0.6em }
dd { margin-left: 1.5rem; color: #444 }
h2, h3 { margin-top: 2em; border-top: 1px solid #ddd; padding-top: 0.5em }
a { color: #05c }
nav a { margin-right: 1em }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 }
  dd { color: #aaa }
  a { color: #7af }
}`;

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Text as it may be in HTML, attributes included. */
export function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"]/g, (character) => ENTITIES[character] ?? character);
}

/** A page with this body, which is HTML already. */
export function pageOf(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${STYLE}
</style>
${body}</html>
`;
}

/** The page of a proto file: its services with their methods, then all messages and enums, each with its comments. */
export function renderFile(file: DescFile): string {
  const messages = file.messages.flatMap(withNested);
  const enums = [...file.enums, ...messages.flatMap(({ nestedEnums }) => nestedEnums)];
  const body = [
    '<nav><a href="index.html">API reference</a></nav>',
    `<h1><code>${escapeHtml(file.name)}.proto</code></h1>`,
    ...file.services.map(renderService),
    '<h2>Messages</h2>',
    ...messages.map(renderMessage),
    '<h2>Enums</h2>',
    ...enums.map(renderEnum),
  ];
  return pageOf(`${file.name}.proto`, `${body.join('\n')}\n`);
}

/** A message with those inside of it, except the entries of maps, which protoc makes up. */
function withNested(message: DescMessage): DescMessage[] {
  return [message, ...message.nestedMessages.flatMap(withNested)];
}

function renderService(service: DescService): string {
  const methods = service.methods.map((method) => renderMethod(service, method)).join('\n');
  return `<h2 id="${service.typeName}">${service.name}</h2>${renderComments(service)}\n<dl>\n${methods}\n</dl>`;
}

function renderMethod(service: DescService, method: DescMethod): string {
  const { input, output, methodKind } = method;
  const before = /^(client|bidi)/.test(methodKind) ? 'stream ' : '';
  const after = /^(server|bidi)/.test(methodKind) ? 'stream ' : '';
  const declaration = `${method.name}(${before}${linkTo(input)}) returns (${after}${linkTo(output)})`;
  const path = `<code>POST /${service.typeName}/${method.name}</code>`;
  return `<dt id="${service.typeName}.${method.name}"><code>${declaration}</code></dt><dd>${path}${renderComments(method)}</dd>`;
}

function renderMessage(message: DescMessage): string {
  const fields = message.fields.map(renderField).join('\n');
  const list = fields === '' ? '<p>It has no fields.</p>' : `<dl>\n${fields}\n</dl>`;
  return `<h3 id="${message.typeName}">${nameIn(message)}</h3>${renderComments(message)}\n${list}`;
}

function renderField(field: DescField): string {
  const type = field.message ?? field.enum;
  const choice = field.oneof ? `<p>It is one of the choices of <code>${field.oneof.name}</code>.</p>` : '';
  const link = type && isOurs(type) ? ` (${linkTo(type)})` : '';
  const declaration = `<dt><code>${escapeHtml(getDeclarationString(field))}</code>${link}</dt>`;
  return `${declaration}<dd>${choice}${renderComments(field)}</dd>`;
}

function renderEnum(type: DescEnum): string {
  const values = type.values.map(
    (value) => `<dt><code>${getDeclarationString(value)}</code></dt><dd>${renderComments(value)}</dd>`,
  );
  return `<h3 id="${type.typeName}">${nameIn(type)}</h3>${renderComments(type)}\n<dl>\n${values.join('\n')}\n</dl>`;
}

/** The name of a type, with those of the messages that it is in. */
function nameIn({ typeName, file }: DescMessage | DescEnum): string {
  return typeName.slice(file.proto.package.length + 1);
}

/** Types of Google, such as Timestamp, are in no page. */
function isOurs({ file }: DescMessage | DescEnum): boolean {
  return !file.name.startsWith('google/');
}

function linkTo(type: DescMessage | DescEnum): string {
  return isOurs(type) ? `<a href="#${type.typeName}">${nameIn(type)}</a>` : type.typeName;
}

function renderComments(desc: Parameters<typeof getComments>[0]): string {
  const { leading, trailing }: DescComments = getComments(desc);
  const paragraphs = [leading, trailing].flatMap((text) => text?.trim().split(/\n\s*\n/) ?? []);
  const html = (text: string) => escapeHtml(text.trim()).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
  return paragraphs.map((text) => `<p>${html(text)}</p>`).join('');
}
