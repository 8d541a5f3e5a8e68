import { parseAst } from 'rolldown/parseAst';

/** One small change of a source file. */
export interface Mutation {
  /** What kind of change it is. */
  readonly kind: string;
  /** From 1 on. */
  readonly line: number;
  readonly start: number;
  readonly end: number;
  /** What is between `start` and `end`, and what comes in its place. */
  readonly before: string;
  readonly after: string;
}

/** The members that all ESTree nodes have. */
interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [member: string]: unknown;
}

type Change = Omit<Mutation, 'line' | 'before'>;

const COMPARISONS: Readonly<Record<string, readonly string[]>> = {
  ...{ '===': ['!=='], '!==': ['==='] },
  ...{ '<': ['<=', '>='], '<=': ['<', '>'], '>': ['>=', '<='], '>=': ['>', '<'] },
};
const ARITHMETIC: Readonly<Record<string, string>> = {
  ...{ '+': '-', '-': '+', '*': '/', '/': '*', '%': '*', '+=': '-=', '-=': '+=' },
  ...{ '&': '|', '|': '&', '<<': '>>', '>>': '<<' },
};
/** Members of nodes that are types, which do nothing when the program runs. */
const TYPES = /^(typeAnnotation|typeParameters|typeArguments|returnType|superTypeArguments|implements)$/;
const TYPE_NODES = /^TS(?!AsExpression|NonNullExpression|SatisfiesExpression)/;
/** What is logged is asserted by few tests, and rightly so. */
const LOGS = /^([\w#]+\.)*#?\w*(log|logger)\.(trace|debug|info|warn|error|fatal)\(/i;

/** All changes of a single operator, condition, value or statement that can be made in a TypeScript source. */
export function mutationsOf(source: string): Mutation[] {
  const program = parseAst(source, { lang: 'ts' }) as unknown as Node;
  return Array.from(walk(program))
    .flatMap((node) => changesOf(node, source))
    .map(({ kind, start, end, after }) => {
      const line = source.slice(0, start).split('\n').length;
      return { kind, line, start, end, before: source.slice(start, end), after };
    })
    .sort((a, b) => a.start - b.start || a.end - b.end);
}

/** The source with the change. */
export function mutated(source: string, { start, end, after }: Mutation): string {
  return source.slice(0, start) + after + source.slice(end);
}

function changesOf(node: Node, source: string): Change[] {
  return EXPRESSIONS[node.type]?.(node, source) ?? STATEMENTS[node.type]?.(node, source) ?? [];
}

type Changes = Readonly<Record<string, (node: Node, source: string) => Change[]>>;

const text = (part: unknown, source: string) => (isNode(part) ? source.slice(part.start, part.end) : '');
const inverted = ({ test }: Node, source: string) => [
  replace('condition inverted', test, `!(${text(test, source)})`),
];
const bare = (kind: string) => (node: Node, source: string) => [
  replace(kind, node, `(${text(node.argument, source)})`),
];
const neverEntered = ({ test }: Node) => (test ? [replace('loop not entered', test, 'false')] : []);
const undefinedInstead = (value: unknown, source: string) =>
  isNode(value) && !/^(undefined|null)$/.test(text(value, source))
    ? [replace('return value', value, 'undefined')]
    : [];

const EXPRESSIONS: Changes = {
  ConditionalExpression: inverted,
  LogicalExpression: logical,
  BinaryExpression: operators,
  AssignmentExpression: operators,
  AwaitExpression: bare('await removed'),
  UnaryExpression: (node, source) => (node.operator === '!' ? bare('negation removed')(node, source) : []),
  Literal: (node) => (typeof node.value === 'boolean' ? [replace('boolean', node, String(!node.value))] : []),
  ArrowFunctionExpression: ({ body }, source) =>
    isNode(body) && body.type !== 'BlockStatement' ? undefinedInstead(body, source) : [],
  UpdateExpression: (node, source) => {
    const other = node.operator === '++' ? '--' : '++';
    return [replace('arithmetic', node, text(node, source).replace(String(node.operator), other))];
  },
};

const STATEMENTS: Changes = {
  IfStatement: inverted,
  WhileStatement: neverEntered,
  ForStatement: neverEntered,
  ReturnStatement: ({ argument }, source) => undefinedInstead(argument, source),
  ThrowStatement: (node) => [replace('throw removed', node, ';')],
  ExpressionStatement: (node, source) => {
    const statement = text(node, source);
    if (typeof node.directive === 'string') return [];
    return /^super\(/.test(statement) || LOGS.test(statement)
      ? []
      : [replace('statement removed', node, ';')];
  },
};

function logical(node: Node, source: string): Change[] {
  if (node.operator !== '??')
    return [operator('logical', node, source, node.operator === '&&' ? '||' : '&&')];
  const { left } = node;
  return isNode(left) ? [replace('logical', node, source.slice(left.start, left.end))] : [];
}

function operators(node: Node, source: string): Change[] {
  const sign = String(node.operator);
  const comparisons = COMPARISONS[sign] ?? [];
  if (comparisons.length > 0) return comparisons.map((after) => operator('comparison', node, source, after));
  const after = ARITHMETIC[sign];
  const isText = [node.left, node.right].some(
    (side) => isNode(side) && (side.type === 'TemplateLiteral' || typeof side.value === 'string'),
  );
  return after === undefined || isText ? [] : [operator('arithmetic', node, source, after)];
}

/** Replaces the operator between the two sides of a node. */
function operator(kind: string, node: Node, source: string, after: string): Change {
  const sign = String(node.operator);
  const start = source.indexOf(sign, (node.left as Node).end);
  return { kind, start, end: start + sign.length, after };
}

function replace(kind: string, node: unknown, after: string): Change {
  const { start, end } = node as Node;
  return { kind, start, end, after };
}

function* walk(value: unknown): Generator<Node> {
  if (Array.isArray(value)) for (const item of value) yield* walk(item);
  if (!isNode(value) || TYPE_NODES.test(value.type)) return;
  yield value;
  for (const [name, member] of Object.entries(value)) {
    if (typeof member === 'object' && !TYPES.test(name)) yield* walk(member);
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}
