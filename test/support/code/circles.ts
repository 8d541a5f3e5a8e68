/** A graph of names: what each leads to. */
type Graph = ReadonlyMap<string, ReadonlySet<string>>;

/** The graph of `edges`, whose ends are named by `name`; edges from a name to itself are left out. */
export function graphOf(
  edges: readonly { readonly from: string; readonly to: string }[],
  name: (file: string) => string,
): Graph {
  const graph = new Map<string, Set<string>>();
  for (const { from, to } of edges) {
    if (name(from) === name(to)) continue;
    graph.set(name(from), (graph.get(name(from)) ?? new Set()).add(name(to)));
  }
  return graph;
}

/** The cycles of a graph, each as the path back to its start. */
export function circlesOf(graph: Graph): string[] {
  const done = new Set<string>();
  const circles: string[] = [];
  const visit = (node: string, trail: readonly string[]): void => {
    if (trail.includes(node)) circles.push([...trail.slice(trail.indexOf(node)), node].join(' > '));
    if (trail.includes(node) || done.has(node)) return;
    for (const next of graph.get(node) ?? []) visit(next, [...trail, node]);
    done.add(node);
  };
  for (const node of graph.keys()) visit(node, []);
  return circles;
}
