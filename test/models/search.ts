/** A step of a model. */
export interface Move<State> {
  readonly name: string;
  readonly to: State;
  /** Whether it is something that goes wrong, or that somebody outside wants: what is to come about comes without. */
  readonly isOptional: boolean;
}

export interface Model<State> {
  readonly initial: State;
  /** All moves from a state. States are values of JSON in a normal form: equal ones have the same text. */
  moves(state: State): readonly Move<State>[];
  /** What must not be so, or null. */
  wrong(state: State): string | null;
  /** Whether nothing more need come. From each state such a one must be reachable without optional moves. */
  isSettled(state: State): boolean;
}

export interface Found {
  readonly states: number;
  readonly moves: number;
  /** The length of the longest shortest way to a state. */
  readonly depth: number;
  readonly milliseconds: number;
  /** The shortest way to what is wrong; null: nothing is. */
  readonly violation: { readonly reason: string; readonly trace: readonly string[] } | null;
}

/** Where a state was reached from first. */
interface Way {
  readonly from: number;
  readonly name: string;
  readonly depth: number;
}

/** Visits every state of a model, breadth first. */
export class Search<State> {
  readonly #model: Model<State>;
  readonly #numbers = new Map<string, number>();
  readonly #ways: Way[] = [];
  readonly #settled: number[] = [];
  /** Where moves that are not optional come from, by state. */
  readonly #before: number[][] = [];
  #moves = 0;

  constructor(model: Model<State>) {
    this.#model = model;
  }

  /** Throws when there are more than `most` states. */
  run(most = 5_000_000): Found {
    const from = performance.now();
    const reason = this.#visitAll(most);
    const violation = reason ?? this.#lost();
    return {
      states: this.#ways.length,
      moves: this.#moves,
      depth: this.#ways.at(-1)?.depth ?? 0,
      milliseconds: Math.round(performance.now() - from),
      violation: violation && { reason: violation.reason, trace: this.#traceTo(violation.at) },
    };
  }

  #visitAll(most: number): { reason: string; at: number } | null {
    const { initial } = this.#model;
    let layer = [{ state: initial, number: this.#number(initial, { from: -1, name: '', depth: 0 }) }];
    while (layer.length > 0) {
      const next: typeof layer = [];
      for (const { state, number } of layer) {
        const reason = this.#model.wrong(state);
        if (reason !== null) return { reason, at: number };
        if (this.#model.isSettled(state)) this.#settled.push(number);
        for (const { to, number: reached } of this.#follow(state, number))
          next.push({ state: to, number: reached });
        if (this.#ways.length > most) throw new Error(`there are more than ${most} states`);
      }
      layer = next;
    }
    return null;
  }

  /** The states that were reached for the first time. */
  *#follow(state: State, number: number): Generator<{ to: State; number: number }> {
    const depth = (this.#ways[number]?.depth ?? 0) + 1;
    for (const { name, to, isOptional } of this.#model.moves(state)) {
      this.#moves += 1;
      const known = this.#ways.length;
      const reached = this.#number(to, { from: number, name, depth });
      if (!isOptional) this.#before[reached]?.push(number);
      if (reached === known) yield { to, number: reached };
    }
  }

  #number(state: State, way: Way): number {
    const text = JSON.stringify(state);
    const known = this.#numbers.get(text);
    if (known !== undefined) return known;
    const number = this.#ways.push(way) - 1;
    this.#numbers.set(text, number);
    this.#before.push([]);
    return number;
  }

  /** A state from which no settled one can be reached. */
  #lost(): { reason: string; at: number } | null {
    const reaching = new Set(this.#settled);
    for (const number of reaching) for (const earlier of this.#before[number] ?? []) reaching.add(earlier);
    const at = this.#ways.findIndex((_, number) => !reaching.has(number));
    return at === -1 ? null : { reason: 'from here nothing settles any more', at };
  }

  #traceTo(number: number): string[] {
    const trace: string[] = [];
    for (let way = this.#ways[number]; way && way.from !== -1; way = this.#ways[way.from])
      trace.push(way.name);
    return trace.reverse();
  }
}
