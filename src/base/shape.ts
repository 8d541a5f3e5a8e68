import { EnvdError } from './errors.ts';

/** The part of JSON Schema 2020-12 that requests use. The OpenAPI document adds descriptions and examples. */
export interface Schema {
  readonly type?: 'object' | 'array' | 'string' | 'integer' | 'boolean';
  readonly enum?: readonly string[];
  readonly format?: string;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly default?: string | number | boolean;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema;
  readonly items?: Schema;
  readonly minItems?: number;
}

/** Checks a value in a request and describes it as JSON Schema. Tests compare `schema` with the OpenAPI document. */
export interface Shape<T> {
  readonly schema: Schema;
  /** Whether an object must have this member. */
  readonly isRequired?: boolean;
  /**
   * Returns the checked value. `value` is parsed JSON, or the text of a query parameter; it is undefined when absent. Throws
   * `invalid_argument` with a message that starts with `name`.
   */
  read(value: unknown, name: string): T;
}

type Members = Readonly<Record<string, Shape<unknown>>>;

/** The values of an object. */
export type ValuesOf<M extends Members> = {
  readonly [Name in keyof M]: M[Name] extends Shape<infer T> ? T : never;
};

export function invalid(name: string, wanted: string): EnvdError {
  return new EnvdError('invalid_argument', `${name} must be ${wanted}`);
}

const isAbsent = (value: unknown) => value === undefined || value === null;

/** Text without NUL. */
export const string: Shape<string> = {
  schema: { type: 'string' },
  read(value, name) {
    if (typeof value !== 'string' || value.includes('\0')) throw invalid(name, 'a string without NUL');
    return value;
  },
};

/** Text without NUL; null when absent or empty. */
export const text: Shape<string | null> = {
  schema: string.schema,
  read: (value, name) => (isAbsent(value) || value === '' ? null : string.read(value, name)),
};

/** Text without NUL; null when absent. */
export const textOrEmpty: Shape<string | null> = {
  schema: string.schema,
  read: (value, name) => (isAbsent(value) ? null : string.read(value, name)),
};

/** Returns a shape of text in a format, such as `date-time`; null when absent or empty. `parse` throws what `read` throws. */
export function formatted<T>(format: string, parse: (text: string, name: string) => T): Shape<T | null> {
  return {
    schema: { type: 'string', format },
    read(value, name) {
      const written = text.read(value, name);
      return written === null ? null : parse(written, name);
    },
  };
}

/** Returns a shape that requires a value. `wanted` describes the value in the error for an absent one. */
function required<T>(shape: Shape<T | null>, wanted: string): Shape<T> {
  return {
    schema: shape.schema,
    isRequired: true,
    read(value, name) {
      const present = shape.read(value, name);
      if (present === null) throw invalid(name, wanted);
      return present;
    },
  };
}

/** Required text without NUL. */
export const requiredText = required(text, 'a string that is not empty');

/** Returns a shape of an object, whose unknown members are ignored. `name` is empty for a whole body or query. */
export function object<M extends Members>(members: M): Shape<ValuesOf<M>> {
  const entries = Object.entries(members);
  const needed = entries.flatMap(([name, shape]) => (shape.isRequired ? [name] : []));
  return {
    schema: {
      type: 'object',
      ...(needed.length > 0 && { required: needed }),
      properties: Object.fromEntries(entries.map(([name, { schema }]) => [name, schema])),
    },
    read(value, name) {
      const given = asRecord(value, name);
      const within = name === '' ? '' : `${name}.`;
      const values: Record<string, unknown> = {};
      for (const [member, shape] of entries)
        values[member] = shape.read(
          Object.hasOwn(given, member) ? given[member] : undefined,
          within + member,
        );
      return values as ValuesOf<M>;
    },
  };
}

/** Returns a shape as `object` does, which refuses unknown members, because a limit with a misspelled name would be no limit. */
export function closed<M extends Members>(members: M): Shape<ValuesOf<M>> {
  const { schema, read } = object(members);
  return {
    schema,
    read(value, name) {
      const unknown = Object.keys(asRecord(value, name)).find((member) => !Object.hasOwn(members, member));
      if (unknown === undefined) return read(value, name);
      const text = `unknown member '${name && `${name}.`}${unknown}': use ${Object.keys(members).join(', ')}`;
      throw new EnvdError('invalid_argument', text);
    },
  };
}

/** Returns a shape of an object with any member names, which `checkName` checks; null when absent. */
export function record<T>(
  item: Shape<T>,
  checkName: (name: string, where: string) => void,
): Shape<Record<string, T> | null> {
  return {
    schema: { type: 'object', additionalProperties: item.schema },
    read(value, name) {
      if (isAbsent(value)) return null;
      const entries = Object.entries(asRecord(value, name)).map(([key, member]): [string, T] => {
        const where = `${name}['${key}']`;
        checkName(key, where);
        return [key, item.read(member, where)];
      });
      return Object.fromEntries(entries);
    },
  };
}

/** Returns a shape of an array; null when absent. */
export function list<T>(item: Shape<T>): Shape<T[] | null> {
  return {
    schema: { type: 'array', items: item.schema },
    read(value, name) {
      if (isAbsent(value)) return null;
      if (!Array.isArray(value)) throw invalid(name, 'an array');
      return value.map((one: unknown, index) => item.read(one, `${name}[${index}]`));
    },
  };
}

/** Returns a shape of a required array with at least one item. */
export function nonEmptyList<T>(item: Shape<T>): Shape<T[]> {
  const { schema, read } = list(item);
  const orNull = (value: unknown, name: string) => {
    const items = read(value, name);
    return items?.length === 0 ? null : items;
  };
  return required({ schema: { ...schema, minItems: 1 }, read: orNull }, 'an array that is not empty');
}

/** Returns a shape whose values are converted by `map`. */
export function mapped<T, U>(shape: Shape<T>, map: (value: T) => U): Shape<U> {
  return { schema: shape.schema, read: (value, name) => map(shape.read(value, name)) };
}

function asRecord(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (!isRecord(value)) throw invalid(name || 'request body', 'an object');
  return value;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// --- query parameters, which are text and may be given once

/** Returns a shape of the text as it was sent; undefined when absent. */
export function sent(schema: Schema): Shape<string | undefined> {
  return {
    schema,
    read(value, name) {
      if (value === undefined || typeof value === 'string') return value;
      throw new EnvdError('invalid_argument', `${name} must be given once`);
    },
  };
}

export const parameter = sent({ type: 'string' });

/** True when the parameter is present, with any value. */
export const presence: Shape<boolean> = {
  schema: parameter.schema,
  read: (value) => value !== undefined,
};

/** Returns a shape of one of `values`; `absent` when absent or empty. */
export function choice<T extends string, A extends T | null>(values: readonly T[], absent: A): Shape<T | A> {
  return {
    schema: { enum: values, ...(absent !== null && { default: absent }) },
    read(value, name) {
      const written = parameter.read(value, name) || absent;
      const known = values.find((one) => one === written);
      if (known === undefined && written !== null)
        throw invalid(name, `one of ${values.join(', ')}, not '${written}'`);
      return known ?? absent;
    },
  };
}

/** True or false; false when absent. */
export const flag: Shape<boolean> = {
  schema: { type: 'boolean', default: false },
  read(value, name) {
    const written = parameter.read(value, name) ?? 'false';
    if (written !== 'true' && written !== 'false') throw invalid(name, `true or false, not '${written}'`);
    return written === 'true';
  },
};

/** Returns a shape of a whole number; `absent` when absent, empty or not positive. */
export function positive(absent: number): Shape<number> {
  return {
    schema: { type: 'integer', default: absent },
    read(value, name) {
      const written = parameter.read(value, name) || '0';
      if (!/^-?\d{1,15}$/.test(written)) throw invalid(name, `a whole number, not '${written}'`);
      return Number(written) > 0 ? Number(written) : absent;
    },
  };
}

/** A whole number that is not negative; null when absent or empty. */
export const wholeNumber: Shape<number | null> = {
  schema: { type: 'integer', minimum: 0 },
  read(value, name) {
    const written = parameter.read(value, name) || null;
    if (written !== null && !/^\d{1,15}$/.test(written))
      throw invalid(name, `a whole number, not '${written}'`);
    return written === null ? null : Number(written);
  },
};

/** Returns a shape of a whole number in a JSON body, from `least` to `most`; `absent` when absent or null. */
export function integer<T extends number | null>(least: number, most: number, absent: T): Shape<number | T> {
  return {
    schema: { type: 'integer', minimum: least, ...(absent !== null && { default: absent }) },
    read(value, name) {
      if (value === undefined || value === null) return absent;
      if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most)
        return value;
      throw invalid(name, `a whole number from ${least} to ${most}`);
    },
  };
}
