import { parseAst } from 'rolldown/parseAst';

/** The members of an ESTree node that are used here. */
type Node = { readonly type: string } & Readonly<Record<string, unknown>>;

/** Methods that change a collection, an array or a buffer. */
const MUTATORS =
  /^(set|add|delete|clear|push|pop|shift|unshift|splice|sort|reverse|fill|copyWithin|write\w*|copy)$/;
/** Classes whose instances are values; instances of others have state. */
const VALUES = /^(Set|Map|WeakSet|WeakMap|Array|URL|RegExp|Date|TextEncoder|TextDecoder|Intl\.\w+)$/;

/**
 * The variables of a module that hold state: `let` and `var`, constants that are changed in place or hold an object
 * with state, and static fields that can be assigned. Takes TypeScript source, with JSX for `tsx`; returns names.
 */
export function moduleState(source: string, lang: 'ts' | 'tsx' = 'ts'): string[] {
  const program = parseAst(source, { lang }) as unknown as Node;
  const changed = changedNames(program);
  return nodes(program.body).flatMap((statement) => {
    const node = isNode(statement.declaration) ? statement.declaration : statement;
    if (node.type === 'ClassDeclaration') return staticState(node);
    if (node.type !== 'VariableDeclaration' || node.declare === true) return [];
    const names = nodes(node.declarations).filter(
      ({ id, init }) => node.kind !== 'const' || changed.has(nameOf(id)) || holdsState(init),
    );
    return names.map(({ id }) => nameOf(id));
  });
}

function staticState({ id, body }: Node): string[] {
  const members = isNode(body) ? nodes(body.body) : [];
  return members
    .filter((member) => member.type === 'PropertyDefinition' && member.static === true)
    .filter(({ readonly, value }) => readonly !== true || holdsState(value))
    .map(({ key }) => `${nameOf(id)}.${nameOf(key)}`);
}

/** `new Agent()`, `Buffer.alloc(8)`. */
function holdsState(value: unknown): boolean {
  if (!isNode(value)) return false;
  if (value.type === 'NewExpression') return !VALUES.test(nameOf(value.callee));
  return value.type === 'CallExpression' && /^Buffer\.alloc/.test(nameOf(value.callee));
}

/** Names of variables that are changed in place: `x.push(…)`, `x[0] = …`, `x.y.z++`, `delete x.y`. */
function changedNames(program: Node): Set<string> {
  const names = Array.from(walk(program), (node) => rootOf(changedBy(node)));
  return new Set(names.filter((name) => name !== ''));
}

/** The member that a node changes, or whose method it calls. */
function changedBy({ type, callee, left, argument, operator }: Node): unknown {
  if (type === 'CallExpression') {
    return isNode(callee) && MUTATORS.test(nameOf(callee.property)) ? callee : null;
  }
  const target = type === 'AssignmentExpression' ? left : argument;
  const isChange = /^(Assignment|Update)Expression$/.test(type) || operator === 'delete';
  return isChange && isNode(target) && target.type === 'MemberExpression' ? target : null;
}

/** `x` of `x.y.z` and `(x as any).y`. */
function rootOf(node: unknown): string {
  if (!isNode(node)) return '';
  const inner = node.object ?? node.expression;
  return isNode(inner) ? rootOf(inner) : nameOf(node);
}

function* walk(value: unknown): Generator<Node> {
  if (Array.isArray(value)) for (const item of value) yield* walk(item);
  if (!isNode(value)) return;
  yield value;
  for (const member of Object.values(value)) if (typeof member === 'object') yield* walk(member);
}

/** `x`, `x.y`; empty for any other expression. */
function nameOf(node: unknown): string {
  if (!isNode(node)) return '';
  if (node.type === 'Identifier' || node.type === 'PrivateIdentifier') return String(node.name);
  return node.type === 'MemberExpression' ? `${nameOf(node.object)}.${nameOf(node.property)}` : '';
}

function nodes(value: unknown): Node[] {
  return Array.isArray(value) ? value.filter(isNode) : [];
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value;
}
