import { strict as assert } from 'node:assert';
import { JSON_BODY, type TestedDaemon } from '../../suite/daemon.ts';

/** Calls /init. */
export const callInit = (daemon: TestedDaemon, body: string) =>
  daemon.rest('POST', '/init', { headers: JSON_BODY, body });
/** /init as the platform calls it: with the token that is set, which stays set by that. */
export const initAgain = (daemon: TestedDaemon, more: object = {}) => {
  const { token } = daemon.run;
  return callInit(daemon, JSON.stringify({ ...(token !== null && { accessToken: token }), ...more }));
};

/** A POST without a body. Throws unless it is answered with `status`. */
export const postFor = async (daemon: TestedDaemon, path: string, status: number) => {
  const answer = await daemon.rest('POST', path);
  assert.equal(answer.status, status, `${path} is ${answer.status}: ${answer.body}`);
  return answer;
};
