import type { Logger } from 'pino';
import { ERROR_HEADERS } from '../../base/errors.ts';
import type { CallScope } from '../calls/call-scope.ts';
import type { Init, InitReport } from '../services/init/init.ts';
import { INIT_REQUEST } from '../services/init/init-request.ts';
import { restErrorOf } from './errors.ts';
import { JsonBodies } from './json-bodies.ts';

/** Strict, because the token is in the body: callers are not authorised before it has been read. */
const LIMITS = {
  bytes: 64 * 1024,
  // Mozilla's complete bundle has 220 KiB.
  large: { name: 'caBundle', bytes: 512 * 1024 },
  containers: 512,
};

/** Without `Cache-Control`, which every response of the daemon has already. */
const { 'cache-control': _, ...errorHeaders } = ERROR_HEADERS;
const ERROR_HEAD = Object.entries(errorHeaders).flat();

/**
 * Serves `POST /init`, called by the platform after each boot and resume: both for Fastify's route and without Fastify, which
 * such a call then neither loads nor touches. `services/init/steps.ts` authorises it.
 */
export class InitCalls {
  readonly #init: Init;
  /** The header of each response with the version of the interface. */
  readonly version: readonly [name: string, value: string];
  readonly #bodies = new JsonBodies(LIMITS);
  readonly #unknown: UnknownMembers;

  /** `version`: of the interface. */
  constructor(init: Init, version: string, logger: Logger) {
    this.#init = init;
    this.version = ['x-envd-version', version];
    this.#unknown = new UnknownMembers(logger);
  }

  /**
   * Sends the response. Does not fail: `call.failure` has the reason.
   * @param head headers of the response, names and values in turn
   */
  async serve(call: CallScope, head: readonly string[] = this.version): Promise<void> {
    const { response } = call;
    const report: InitReport = { freezeAudit: null };
    const headOf = () => {
      const audit = report.freezeAudit && ['x-envd-freeze-audit', JSON.stringify(report.freezeAudit)];
      return [...head, ...(audit ?? [])];
    };
    try {
      await this.#apply(call, report);
      if (report.delivered) response.once('finish', report.delivered);
      response.writeHead(204, headOf()).end();
    } catch (error) {
      call.failure = error;
      const { code, body } = restErrorOf(error);
      const length = ['content-length', `${Buffer.byteLength(body)}`];
      response.writeHead(code, [...headOf(), ...ERROR_HEAD, ...length]).end(body);
    }
  }

  async #apply(call: CallScope, report: InitReport): Promise<void> {
    const body = (await this.#bodies.read(call.request, call.response)) ?? {};
    const wanted = INIT_REQUEST.read(body, '');
    await this.#init.apply(wanted, report, call);
    this.#unknown.note(Object.keys(body));
  }
}

const MEMBERS = Object.keys(INIT_REQUEST.schema.properties ?? {});

/** Logs each unknown member of a body once; a newer platform may send them. */
class UnknownMembers {
  readonly #named = new Set<string>();
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  note(names: readonly string[]): void {
    for (const name of names) {
      if (MEMBERS.includes(name) || this.#named.has(name) || this.#named.size >= MOST_UNKNOWN) continue;
      this.#named.add(name);
      this.#logger.warn({ member: name.slice(0, MOST_UNKNOWN) }, 'unknown member of /init is ignored');
    }
  }
}

/** Names that are kept or logged, and characters of each line. */
const MOST_UNKNOWN = 64;
