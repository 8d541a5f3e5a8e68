import { type RawSandbox, startRawSandbox } from './raw-sandbox.ts';

/** What stands for a daemon and its machine: it answers at once, and notes what is asked of it. */
export interface Agent extends AsyncDisposable {
  readonly port: number;
  /** `METHOD /path` of each request but `GET /health`. */
  readonly asked: string[];
  /** Whether its guest can be frozen. */
  freezes: boolean;
  /** Whether its guest can be thawed. */
  thaws: boolean;
}

const FROZEN = JSON.stringify({ notFrozen: 0, failed: 0, unobservable: 0 });

/** @param name is the answer to what no daemon knows */
export async function startAgent(name = 'ok'): Promise<Agent> {
  const agent = { asked: [] as string[], freezes: true, thaws: true };
  const sandbox: RawSandbox = await startRawSandbox((socket, head) => {
    const [method = '', path = ''] = head.split(' ');
    // An expiry begins with a probe, which changes nothing.
    if (path !== '/health' || method !== 'GET') agent.asked.push(`${method} ${path}`);
    const body = path.startsWith('/freeze') ? FROZEN : path === '/collapse' ? '{}' : name;
    const isRefused = path.startsWith('/freeze') && !agent.freezes;
    const status = path === '/unfreeze' && !agent.thaws ? '503 No' : isRefused ? '412 No' : '200 OK';
    socket.end(`HTTP/1.1 ${status}\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`);
  });
  return Object.assign(agent, {
    port: sandbox.port,
    [Symbol.asyncDispose]: () => sandbox[Symbol.asyncDispose](),
  });
}
