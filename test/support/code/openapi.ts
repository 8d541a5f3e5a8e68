import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/* The OpenAPI document as data, and the part of JSON Schema that it uses. */

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

type Type = 'object' | 'array' | 'string' | 'integer' | 'number' | 'boolean' | 'null';

/** JSON Schema 2020-12, as far as the document uses it. */
export interface Schema {
  readonly type?: Type | readonly Type[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly format?: string;
  readonly default?: unknown;
  readonly minimum?: number;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema;
  readonly items?: Schema;
  readonly minItems?: number;
  readonly oneOf?: readonly Schema[];
  readonly description?: string;
  readonly examples?: readonly unknown[];
  readonly contentMediaType?: string;
}

const KEYWORDS = new Set([
  ...[
    'type',
    'enum',
    'const',
    'format',
    'default',
    'minimum',
    'required',
    'properties',
    'additionalProperties',
    'items',
  ],
  ...['minItems', 'oneOf', 'description', 'examples', 'contentMediaType'],
]);

export interface Parameter {
  readonly name: string;
  readonly in: 'query' | 'header' | 'path';
  readonly schema: Schema;
}

interface Answer {
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
}

interface OperationObject {
  readonly operationId: string;
  readonly tags?: readonly string[];
  /** Who may call it; without it, what the whole document says. */
  readonly security?: readonly Readonly<Record<string, unknown>>[];
  /** Whether a gateway passes it on for the platform alone. */
  readonly 'x-platform-only'?: boolean;
  readonly 'x-codeSamples'?: readonly { readonly lang: string; readonly source: string }[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> };
  readonly responses: Readonly<Record<string, Answer>>;
}

export interface Operation extends OperationObject {
  /** In upper case. */
  readonly method: string;
  readonly path: string;
  /** Those of the path, too. */
  readonly parameters: readonly Parameter[];
}

/** The operations of a document in proto. */
export function readOperations(document = 'envd.openapi.yaml'): Operation[] {
  const bundle = ['bundle', '--config', 'proto/redocly.yaml', `proto/${document}`, '--dereferenced'];
  const text = execFileSync('node_modules/.bin/redocly', [...bundle, '--ext', 'json'], {
    ...{ cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
  });
  const { paths } = JSON.parse(text);
  return Object.entries<Record<string, OperationObject>>(paths).flatMap(
    ([path, { parameters, ...methods }]) =>
      Object.entries(methods).map(([method, operation]) => ({
        ...operation,
        path,
        method: method.toUpperCase(),
        parameters: [...((parameters as unknown as Parameter[]) ?? []), ...(operation.parameters ?? [])],
      })),
  );
}

/** What is wrong with `value`, or null. Throws for a schema that it does not understand. */
export function violation(schema: Schema, value: unknown, name = 'body'): string | null {
  const unknown = Object.keys(schema).find((keyword) => !KEYWORDS.has(keyword));
  if (unknown !== undefined) throw new Error(`unknown keyword ${unknown}`);
  if (schema.oneOf) {
    const fitting = schema.oneOf.filter((one) => violation(one, value, name) === null).length;
    return fitting === 1 ? null : `${name} fits ${fitting} of the schemas`;
  }
  if (schema.enum && !schema.enum.includes(value)) return `${name} is none of ${schema.enum}`;
  if ('const' in schema && schema.const !== value) return `${name} is not ${schema.const}`;
  if (schema.type && ![schema.type].flat().some((type) => isOf(type, value)))
    return `${name} is no ${schema.type}`;
  if (schema.type === 'array' && Array.isArray(value))
    return first(value.map((item, index) => violation(schema.items ?? {}, item, `${name}[${index}]`)));
  return schema.type === 'object' ? ofObject(schema, value as Record<string, unknown>, name) : null;
}

function ofObject(schema: Schema, value: Readonly<Record<string, unknown>>, name: string): string | null {
  const missing = schema.required?.find((member) => !(member in value));
  if (missing !== undefined) return `${name} has no ${missing}`;
  return first(
    Object.entries(value).map(([member, item]) => {
      const known = schema.properties?.[member] ?? schema.additionalProperties;
      // Answers have no members that the document does not tell.
      return known ? violation(known, item, `${name}.${member}`) : `${name}.${member} is not in the document`;
    }),
  );
}

function isOf(type: Type, value: unknown): boolean {
  if (type === 'integer') return Number.isInteger(value);
  if (type === 'array') return Array.isArray(value);
  if (type === 'null') return value === null;
  return type === 'object'
    ? typeof value === 'object' && value !== null && !Array.isArray(value)
    : typeof value === type;
}

function first(violations: readonly (string | null)[]): string | null {
  return violations.find((one) => one !== null) ?? null;
}
